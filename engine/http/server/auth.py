"""Access control: grants read and write access by HTTP.

Clients on this machine may read; other clients need a token, and so does every change. A request under a foreign host
name isn't local, whatever its address: a foreign page whose name resolves to this machine would send it from the
operator's browser. A request through a proxy isn't local either, as the proxy acts for others. Nor is a browser's
request on behalf of another site's page: that page couldn't read the answer, but could use up the places of viewers. A
link on such a page to the status page works.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from evenlane.engine.errors import ConfigError
from evenlane.engine.http.server.scopes import Grant, Need, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.datastructures import Headers
    from starlette.requests import HTTPConnection

_OF_PROXIES = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_READING = "reading from another machine, through a proxy, under another name or for a page of another origin"
_SETS_IT = "the setting http_token_file (EVENLANE_HTTP_TOKEN_FILE) names a file with one, http_tokens_file with several"
_ASKS_A_BROWSER = {"WWW-Authenticate": 'Basic realm="Evenlane: any name, and the token as password", charset="UTF-8"'}
_ASKS_THE_PAGE = {"WWW-Authenticate": 'Bearer realm="Evenlane"'}


class AccessControl:
    """Grants access by the client's address and token. `token` reads the token with all scopes on demand, None if there
    is none; `grants` those with scopes of their own. Both may raise ConfigError.
    """

    def __init__(self, token: Callable[[], str | None], grants: Callable[[], Sequence[Grant]] = lambda: ()) -> None:
        self._token, self._grants = token, grants

    def check(self, request: HTTPConnection, need: Need) -> str:
        """Return the name of the token, empty without one. Raises HTTPException without access.

        To read, a browser may give the token as a password, since users can't make it send a header. For anything else
        a password isn't accepted: browsers send it on their own, even for requests that another page caused.
        """
        given, what, asks = _bearer(request.headers), "changing something", _ASKS_THE_PAGE
        if need.scope is Scope.READ:
            if is_local(request):
                return ""
            given = given or ("" if _is_for_another_page(request) else _basic(request.headers))
            what, asks = _READING, _ASKS_A_BROWSER
        grant = self._identify(given, what, asks)
        if (lack := grant.missing(need, request.path_params.get("project"))) is not None:
            raise HTTPException(HTTPStatus.FORBIDDEN, f"the token {grant.name!r} {lack}")
        return grant.name

    def _identify(self, given: str, what: str, asks: dict[str, str]) -> Grant:
        try:
            grants = self._all()
        except ConfigError as error:
            raise HTTPException(HTTPStatus.FORBIDDEN, f"{what} needs a token, and {error}") from error
        if not grants:
            raise HTTPException(HTTPStatus.FORBIDDEN, f"{what} needs a token, and this node has none: {_SETS_IT}")
        if not given:
            raise HTTPException(
                HTTPStatus.UNAUTHORIZED, f"{what} needs the token of this node: Authorization: Bearer TOKEN", asks
            )
        digest, found = sha256(given.encode()).digest(), None
        for grant in grants:  # all of them, so that the time tells nothing
            if hmac.compare_digest(digest, grant.digest):
                found = grant
        if found is None:
            raise HTTPException(
                HTTPStatus.UNAUTHORIZED, f"{what} needs the token of this node, and this is another one", asks
            )
        return found

    def _all(self) -> Sequence[Grant]:
        """Raises ConfigError."""
        token = self._token()
        own = [] if token is None else [Grant("http_token_file", sha256(token.encode()).digest(), frozenset(Scope))]
        return [*own, *self._grants()]


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
