"""A nats-py client that never falls back from TLS to clear text; and the recognition of refusals."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import nats.errors
from nats.aio.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_EXPIRED = 10  # OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED


class GuardedClient(Client):
    """Refuses a server that doesn't offer TLS if TLS is configured. nats-py's own client would continue in clear text,
    whatever its options, and send the password.
    """

    def __init__(self, renew_tls: Callable[[], ssl.SSLContext | None] = lambda: None) -> None:
        super().__init__()
        self._renew_tls = renew_tls

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The context of a new connection: certificates may have been replaced since the last one."""
        with _retried_errors():
            renewed = self._renew_tls()
        return super().ssl_context if renewed is None else renewed

    def _connect_command(self) -> bytes:
        """The login, from the files as they are now."""
        with _retried_errors():
            return super()._connect_command()

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


@contextmanager
def _retried_errors() -> Iterator[None]:
    """Raise errors in files as those of nats-py: any other error would end its attempts to connect."""
    try:
        yield
    except Exception as error:
        raise nats.errors.Error(str(error) or type(error).__name__) from error


class ServerRefused(nats.errors.Error):
    """The server has refused; retrying won't help."""


class CertificateExpired(ServerRefused):
    """The server's certificate has expired."""


def find_refusal(error: Exception | None) -> ServerRefused | None:
    """The refusal in an error, in our words; None if the server didn't refuse."""
    if isinstance(error, ServerRefused):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _EXPIRED:
            return CertificateExpired("its certificate has expired")
        return ServerRefused(f"its certificate isn't trusted (nats_ca): {error.verify_message}")
    if "authorization violation" in str(error).lower():
        login = "nats_user and nats_password_file, or nats_creds_file"
        return ServerRefused(f"the credentials are wrong, or none are set ({login})")
    return None
