"""Access control: grants read and write access by HTTP.

Clients on this machine may read; other clients need the token, and so does every change. A request under a foreign host
name isn't local, whatever its address: a foreign page whose name resolves to this machine would send it from the
operator's browser. A request through a proxy isn't local either, as the proxy acts for others. Nor is a browser's
request on behalf of another site's page: that page couldn't read the answer, but could use up the places of viewers. A
link on such a page to the status page works.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import Headers
    from starlette.requests import HTTPConnection

_OF_PROXIES = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_READING = "reading from another machine, through a proxy, under another name or for a page of another origin"
_SETS_IT = "the setting http_token_file (EVENLANE_HTTP_TOKEN_FILE) names a file with one"
_ASKS_A_BROWSER = {"WWW-Authenticate": 'Basic realm="Evenlane: any name, and the token as password", charset="UTF-8"'}
_ASKS_THE_PAGE = {"WWW-Authenticate": 'Bearer realm="Evenlane"'}


class AccessControl:
    """Grants access by the client's address and token. `token` reads the token on demand, None if there is none; it may
    raise ConfigError.
    """

    def __init__(self, token: Callable[[], str | None]) -> None:
        self._token = token

    def check_read(self, request: HTTPConnection) -> None:
        """Raise HTTPException without read access. A browser may give the token as a password, since users can't make
        it send a header.
        """
        if is_local(request):
            return
        given = _bearer(request.headers) or ("" if _is_for_another_page(request) else _basic(request.headers))
        self._check(given, _READING, _ASKS_A_BROWSER)

    def check_change(self, request: HTTPConnection) -> None:
        """Raise HTTPException without write access. A password isn't accepted: browsers send it on their own, even for
        requests that another page caused.
        """
        self._check(_bearer(request.headers), "changing something", _ASKS_THE_PAGE)

    def _check(self, given: str, what: str, asks: dict[str, str]) -> None:
        try:
            token = self._token()
        except ConfigError as error:
            raise HTTPException(HTTPStatus.FORBIDDEN, f"{what} needs a token, and {error}") from error
        if token is None:
            raise HTTPException(HTTPStatus.FORBIDDEN, f"{what} needs a token, and this node has none: {_SETS_IT}")
        if not given:
            raise HTTPException(
                HTTPStatus.UNAUTHORIZED, f"{what} needs the token of this node: Authorization: Bearer TOKEN", asks
            )
        if not hmac.compare_digest(given.encode(), token.encode()):
            raise HTTPException(
                HTTPStatus.UNAUTHORIZED, f"{what} needs the token of this node, and this is another one", asks
            )


def is_local(request: HTTPConnection) -> bool:
    """Whether the request comes from this machine, under a host name that can't mean another machine."""
    if request.client is None or any(name in request.headers for name in _OF_PROXIES) or _is_for_another_page(request):
        return False
    hosts = request.headers.getlist("host")
    return _is_loopback(request.client.host) and len(hosts) == 1 and _is_loopback_host(hosts[0])


def _is_for_another_page(request: HTTPConnection) -> bool:
    """Whether a browser sends the request for another site's page; the browser would add a password that it remembers.
    Programs other than browsers don't send the header `Sec-Fetch-Site`.
    """
    headers = request.headers
    if headers.get("sec-fetch-site", "none") in {"none", "same-origin"}:
        return False
    return not (request.url.path == "/" and headers.get("sec-fetch-mode") == "navigate")


def _is_loopback_host(host: str) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if name is None or "@" in host or parts.path or parts.query or parts.fragment:
        return False
    return name == "localhost" or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)  # an IPv4 client of a dual-stack socket
    return mapped.is_loopback if mapped is not None else ip.is_loopback


def _bearer(headers: Headers) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _basic(headers: Headers) -> str:
    """Return the password."""
    kind, _, encoded = headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return b64decode(encoded.strip(), validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
