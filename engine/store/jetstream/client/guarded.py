"""nats-py's client, which says nothing in clear text to who should have TLS; and what is a refusal of a server's."""

from __future__ import annotations

import ssl
from typing import Any

import nats.errors
from nats.aio.client import Client


class GuardedClient(Client):
    """nats-py's client goes on in clear text with a server that offers no TLS, whatever it was told to use; then the
    password follows.
    """

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        await super()._process_info(info, initial_connection)
        if not initial_connection or not self._wants_tls():
            return
        if not info.get("tls_required") and not info.get("tls_available"):
            raise ServerRefused("it offers no TLS, which tls:// or nats_ca or nats_cert asks for")
        info["tls_required"] = True  # else nats-py would not use what is merely offered

    def _wants_tls(self) -> bool:
        server = self._current_server
        return "tls" in self.options or (server is not None and server.uri.scheme == "tls")


class ServerRefused(nats.errors.Error):
    """The server answered, and time mends nothing."""


def refused(error: Exception | None) -> ServerRefused | None:
    """What was an answer, in our words."""
    if isinstance(error, ServerRefused):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServerRefused(f"its certificate isn't trusted (nats_ca): {error.verify_message}")
    if "authorization violation" in str(error).lower():
        return ServerRefused("the log-in is wrong (nats_user and nats_password_file, or nats_creds_file)")
    return None
