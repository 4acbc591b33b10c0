"""The connection to NATS on top of nats-py: login, reconnects, publishing, and raw subscriptions."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import nats.errors
import structlog

from evenlane.engine.base.aio.cancellation import cancellable, count_cancellations
from evenlane.engine.base.callbacks import call_all
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.store.jetstream.client.guarded import (
    CertificateExpired,
    GuardedClient,
    ServerRefused,
    find_refusal,
)
from evenlane.engine.store.jetstream.client.server_certificate import describe_expiry
from evenlane.engine.store.jetstream.delivery.outbox import Outbox
from evenlane.engine.store.jetstream.delivery.protocol_parser import LeanParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

    from evenlane.engine.store.jetstream.client.options import NatsOptions

_log = structlog.get_logger(__name__)

_FAREWELL_S = 0.5
_CLOSING_S = 2.0
_MOST_DENIED = 100  # subjects


class Transport(ABC):
    """A connection that reconnects for ever. It sends nothing twice, and buffers nothing while there is no server."""

    def __init__(self, options: NatsOptions, name: str) -> None:
        self._options, self._name = options, name
        self._opened = False
        self._cancellations = 0  # of the task that opens the connection, before it begins
        self._client: Client = GuardedClient(options.tls)
        self.outbox = Outbox(self._client)
        self._parser = LeanParser(self._client)
        self._parser.on_denied = self._on_denied
        self._client._ps = self._parser  # type: ignore[assignment]
        self._denied: set[tuple[str, str]] = set()  # what and subject, so that each is logged once per connection
        self._refused: set[type[ServerRefused]] = set()  # why the server refuses a lost connection, as logged
        self.on_publish_denied: list[Callable[[str], None]] = []  # called with the subject
        # grows whenever earlier answers of the servers may no longer hold
        self.incarnation = 0
        self.on_lost: list[Callable[[], None]] = []
        self.on_back: list[Callable[[], None]] = []

    @abstractmethod
    def _fail_asked(self, why: str) -> None:
        """Called when no pending request will be answered any more, before the callbacks of `on_lost`."""

    @property
    def is_connected(self) -> bool:
        return bool(self._client.is_connected)

    @property
    def max_payload(self) -> int:
        return self.outbox.max_payload

    async def open(self) -> None:
        """Raises Unreachable if no server answers within the connect timeout, EvenlaneError if one refuses, ConfigError
        for a file without valid credentials or certificates.
        """
        login = self._options.login()
        try:
            await cancellable(self._connect(login))
        except (OSError, TimeoutError, nats.errors.Error) as error:
            where, why = ", ".join(self._options.servers), self._why(error)
            refusal = find_refusal(error) or find_refusal(self._client.last_error)
            await cancellable(self._abandon())
            if isinstance(refusal, CertificateExpired):
                refusal = ServerRefused(await describe_expiry(self._options.servers))
            if refusal is not None:
                raise EvenlaneError(f"NATS at {where} refuses: {refusal}") from error
            raise Unreachable(f"NATS at {where} does not answer: {why}") from error
        except asyncio.CancelledError:
            await self._abandon()
            raise
        self._opened = True

    def _why(self, error: Exception) -> str:
        """The cause of the failure. nats-py knows more than that the time ran out, if an attempt of it failed."""
        cause = self._client.last_error or error
        if isinstance(cause, TimeoutError):
            return f"{type(cause).__name__}; if something listens there, it doesn't speak the NATS protocol"
        return str(cause) or type(cause).__name__

    async def _connect(self, login: dict[str, Any]) -> None:
        options, self._cancellations = self._options, count_cancellations()
        # With max_reconnect_attempts=-1, nats-py also retries the first connection for ever; the timeout prevents that.
        async with asyncio.timeout(options.connect_timeout):
            await self._client.connect(
                list(options.servers),
                name=self._name,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.2,  # type: ignore[arg-type]
                connect_timeout=2,
                ping_interval=3,
                max_outstanding_pings=1,  # detects a silently dead connection within 6 s
                pending_size=64 << 20,
                error_cb=self._on_error,
                disconnected_cb=self._on_lost,
                reconnected_cb=self._on_back,
                **login,
            )

    async def _abandon(self) -> None:
        try:
            async with asyncio.timeout(_FAREWELL_S):  # the end of a failed TLS handshake isn't reported
                await self._client.close()
        except (OSError, nats.errors.Error, asyncio.CancelledError):
            _log.debug("closing a connection that never was")

    async def close(self) -> None:
        """Flush pending data, unless the server reads nothing for 2 s, and close."""
        self.on_lost.clear()
        self.on_back.clear()
        try:
            if self._opened and not self._client.is_closed:
                await cancellable(self._close())
        finally:
            self._fail_asked("the connection was closed")

    async def _close(self) -> None:
        """Bounded in time: nats-py would wait without end for a hanging server to read pending data."""
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self._client.close()
        except TimeoutError:
            _log.debug("a connection is cut off", connection=self._name, reason="the server reads nothing")
            writer = getattr(self._client._transport, "_io_writer", None)
            if writer is not None:
                writer.transport.abort()

    async def _on_error(self, error: Exception) -> None:
        _log.debug("nats", error=str(error) or type(error).__name__)
        # If a cancellation comes together with a refusal, nats-py sees the refusal only (`cancellable`), and would try
        # for ever: the timeout cancels only once.
        if not self._opened and count_cancellations() > self._cancellations:
            raise asyncio.CancelledError
        # nats-py would retry until the timeout; with several servers, another one may accept the login
        refusal = find_refusal(error)
        if refusal is None:
            return
        if self._opened:
            await self._report_refusal(refusal)
        elif len(self._options.servers) == 1:
            raise refusal

    async def _report_refusal(self, refusal: ServerRefused) -> None:
        """Log why the server doesn't take the connection back: once for each reason, until it does."""
        if type(refusal) in self._refused:
            return
        self._refused.add(type(refusal))
        if isinstance(refusal, CertificateExpired):
            refusal = ServerRefused(await describe_expiry(self._options.servers))
        _log.warning("NATS refuses the connection", connection=self._name, reason=str(refusal))

    async def _on_lost(self) -> None:
        if not self._client.is_closed:  # closed by us
            _log.warning("NATS is out of reach", connection=self._name)
        self.incarnation += 1
        # nats-py would send it to the next server, long after the caller got Disconnected
        self._client._pending.clear()
        self._client._pending_data_size = 0
        self._fail_asked("NATS went away before it answered")
        call_all(self.on_lost)

    async def _on_back(self) -> None:
        _log.info("NATS is back", connection=self._name)
        self._denied.clear()
        self._refused.clear()
        self.incarnation += 1
        call_all(self.on_back)

    def _on_denied(self, what: str, subject: str) -> None:
        """The user has no permission for this subject. The server drops what was published, and answers nothing."""
        if (what, subject) not in self._denied and len(self._denied) < _MOST_DENIED:
            self._denied.add((what, subject))
            _log.warning("NATS denies a subject", connection=self._name, what=what, subject=subject[:200])
        if what == "publish":
            for denied in self.on_publish_denied:
                denied(subject)

    def send(self, subject: str, body: bytes, headers: bytes = b"", reply: str = "") -> None:
        """Queue one publish. Raises Disconnected if there is no connection."""
        self.outbox.publish(subject.encode(), body, headers, reply.encode())

    def listen(self, subject: str, callback: Callable[[bytes, bytes, bytes, bytes], None]) -> int:
        """Subscribe. The callback runs inside the parser and must be quick. The subscription survives reconnects."""
        client = self._client
        client._sid += 1
        sid = int(client._sid)
        self._parser.raw[b"%d" % sid] = callback
        client._subs[sid] = _Quiet(subject)  # type: ignore[assignment]
        self.outbox.write(b"SUB %b  %d\r\n" % (subject.encode(), sid))
        return sid

    async def round_trip(self, within_s: float) -> None:
        """Return once the server has answered everything that was written so far, or after this time.

        nats-py's `flush` sends its PING before what the outbox holds.
        """
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._client._pongs.append(answered)
        self.outbox.write(b"PING\r\n")
        await asyncio.wait([answered], timeout=within_s)  # a cancelled future would be an error when its PONG arrives

    def unlisten(self, sid: int) -> None:
        if self._parser.raw.pop(b"%d" % sid, None) is None:
            return
        self._client._subs.pop(sid, None)
        if self._client.is_connected:
            self.outbox.write(b"UNSUB %d \r\n" % sid)


class _Quiet:
    """The record of a subscription that nats-py needs in order to renew it; the parser delivers the messages."""

    _queue = ""
    _max_msgs = 0
    _received = 0
    _wait_for_msgs_task = None
    _message_iterator = None
    _pending_next_msgs_calls = None

    def __init__(self, subject: str) -> None:
        self._subject = subject
