"""TLS contexts from the settings. Errors in files are reported before any connection is made."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evenlane.engine.base.certificates import expiry_of_pem
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


def context(of: str, ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return a context for the settings `<of>_ca`, `<of>_cert` and `<of>_key`; None if none is given. Raises
    ConfigError, which names the setting.
    """
    if ca is None and cert is None:
        return None
    for setting, path in ((f"{of}_ca", ca), (f"{of}_cert", cert)):
        _check_expiry(setting, path)
    with _translate_errors(f"{of}_ca: {ca} contains no readable certificates in PEM"):
        made = ssl.create_default_context(cafile=ca)
    if cert is not None:
        _load_chain(made, of, cert, key)
    return made


def server_context(of: str, cert: str, key: str) -> ssl.SSLContext:
    """Return the context of a server for the settings `<of>_cert` and `<of>_key`. Raises ConfigError, which names the
    setting.
    """
    _check_expiry(f"{of}_cert", cert)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_chain(made, of, cert, key)
    return made


def _load_chain(into: ssl.SSLContext, of: str, cert: str, key: str | None) -> None:
    with _translate_errors(f"{of}_cert and {of}_key: {cert} and {key} are not a certificate and its key in PEM"):
        into.load_cert_chain(cert, key, password=_no_password)


def _check_expiry(setting: str, path: str | None) -> None:
    """Raise ConfigError if the first certificate of the file has expired. Other defects are found when it is loaded."""
    try:
        expiry = None if path is None else expiry_of_pem(Path(path).read_text(encoding="ascii", errors="replace"))
    except OSError:
        return
    if (date := _past(expiry)) is not None:
        raise ConfigError(f"{setting}: the certificate in {path} expired on {date}")


def expired_on(pem: str) -> str | None:
    """Return the date on which a certificate has expired, for an error; None if it has not."""
    return _past(expiry_of_pem(pem))


def _past(expiry: datetime | None) -> str | None:
    return None if expiry is None or expiry >= datetime.now(UTC) else f"{expiry:%Y-%m-%d %H:%M} UTC"


def _no_password() -> str:
    raise ValueError("the key is encrypted")  # otherwise OpenSSL would ask on the terminal


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what}: {getattr(error, 'strerror', None) or error}") from error
