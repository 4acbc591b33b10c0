"""The request port: a connection on which processes send each other requests.

`Disconnected` is in `evenlane.engine.core.ports`, since stores raise it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


INBOX = "_INBOX."
"""The prefix of reply subjects. A node replies to no other subject; otherwise a requester could make it
write anywhere.
"""

SERVICE_INBOX = "_R_."
"""The prefix that NATS gives to reply subjects of requests from another account. No client may choose it."""

NO_RESPONDERS = b"NATS/1.0 503"
"""The prefix of the headers of the reply that a bus itself sends if a request has no listener."""


class RequestBus(Protocol):
    """A connection for requests and responses."""

    async def open(self) -> None:
        """Raises Unreachable."""

    def listen(self, subject: str, on_message: Callable[[bytes, bytes, bytes, bytes], None]) -> int:
        """Call `on_message(subject, reply, headers, body)` for each message; the token `*` in the subject matches any
        token. Returns the id for `unlisten`.
        """

    def unlisten(self, sid: int) -> None: ...

    def new_inbox(self) -> str:
        """Return a reply subject of this connection that nothing else uses. It begins with `INBOX`."""

    def send(self, subject: str, body: bytes, headers: bytes = b"", reply: str = "") -> None:
        """Publish to all listeners of the subject. Raises Disconnected."""

    async def close(self) -> None: ...
