"""A nats-py client that never falls back from TLS to clear text; and the recognition of refusals."""

from __future__ import annotations

import ssl
from typing import Any

import nats.errors
from nats.aio.client import Client


class GuardedClient(Client):
    """Refuses a server that doesn't offer TLS if TLS is configured. nats-py's own client would continue in clear text,
    whatever its options, and send the password.
    """

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        await super()._process_info(info, initial_connection)
        if not initial_connection or not self._needs_tls():
            return
        if not info.get("tls_required") and not info.get("tls_available"):
            raise ServerRefused("it offers no TLS, which tls:// or nats_ca or nats_cert asks for")
        info["tls_required"] = True  # nats-py doesn't use TLS that is merely offered

    def _needs_tls(self) -> bool:
        server = self._current_server
        return "tls" in self.options or (server is not None and server.uri.scheme == "tls")


class ServerRefused(nats.errors.Error):
    """The server has refused; retrying won't help."""


def find_refusal(error: Exception | None) -> ServerRefused | None:
    """The refusal in an error, in our words; None if the server didn't refuse."""
    if isinstance(error, ServerRefused):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServerRefused(f"its certificate isn't trusted (nats_ca): {error.verify_message}")
    if "authorization violation" in str(error).lower():
        return ServerRefused("the credentials are wrong (nats_user and nats_password_file, or nats_creds_file)")
    return None
