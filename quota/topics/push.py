"""The rules for push settings: an address, headers, the name of a secret (docs/reference/http-push.md)."""

import re
from collections.abc import Mapping
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from evenlane.quota.topics.strict_json import TopicError, format_value

DEFAULTS: Mapping[str, Any] = {"timeout": 10.0, "secret_ref": None, "headers": {}, "concurrency": None}
"""Defaults of all settings but `url`, which is required. `timeout` in seconds."""

MOST_URL = 2_048  # characters
MOST_HEADERS = 32
MOST_HEADER_VALUE = 4_096  # characters

# Headers of one connection, which must not be forwarded (RFC 9110, 7.6.1), or which the client sets itself.
_OF_THE_CONNECTION = frozenset((
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade", "http2-settings", "host", "content-length", "expect", "accept-encoding",
))  # fmt: skip
_OURS = ("webhook-", "evenlane-", "nats-")

_OF_A_URL = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")  # RFC 3986
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,254}}$){_LABEL}(?:\.{_LABEL})*\.?")
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$")
_USER = re.compile(r"//[^/]*@")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]*")
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def url(field: str, value: object) -> str:
    """An absolute http or https URL, kept unchanged. Raises TopicError."""
    if not isinstance(value, str):
        raise TopicError(field, f"must be a string such as https://example.com/hook, not {format_value(value)}")
    if len(value) > MOST_URL:
        raise TopicError(field, f"has {len(value):,} characters: at most {MOST_URL:,} are allowed")
    if not _OF_A_URL.fullmatch(value):
        raise TopicError(field, f"must be an address in ASCII, with %XX for the rest, not {_format(value)}")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:  # an invalid port, or unbalanced brackets
        raise TopicError(field, f"must have a valid host and port, not {_format(value)}") from None
    _check_parts(field, value, parts)
    if port == 0:
        raise TopicError(field, f"must have a port from 1 to 65535, not {_format(value)}")
    return value


def _check_parts(field: str, value: str, parts: SplitResult) -> None:
    if parts.scheme not in ("http", "https") or not value.lower().startswith(f"{parts.scheme}://"):
        raise TopicError(field, f"must begin with http:// or https://, not be {_format(value)}")
    if "@" in parts.netloc:
        raise TopicError(field, "must have no user or password in it: a header may carry them")
    if "#" in value:
        raise TopicError(field, f"must have no fragment (#...), as none is ever sent: {_format(value)}")
    if not _is_host(parts):
        raise TopicError(field, f"must have a host such as example.com, not {_format(value)}")


def _is_host(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    if parts.netloc.endswith(":"):
        return False
    try:
        if parts.netloc.startswith("["):
            return IPv6Address(host).scope_id is None
        if _ENDS_IN_NUMBER.search(host):  # some programs take 127.1 and 0x7f000001 for addresses, others for names
            return str(IPv4Address(host)) == host
    except AddressValueError:
        return False
    return bool(_HOST.fullmatch(host))


def _format(value: str) -> str:
    """The URL for an error text, without a password."""
    return format_value(_USER.sub("//***@", value))


def secret_ref(field: str, value: object) -> str:
    """A plain file name, so that it can't lead out of the node's folder. Raises TopicError."""
    if not isinstance(value, str) or not _SECRET.fullmatch(value):
        rule = "letters, digits, '.', '_' and '-', the first a letter or digit"
        raise TopicError(
            field, f"must be the name of a file in the node's push_secrets ({rule}), not {format_value(value)}"
        )
    return value


def headers(field: str, value: object) -> dict[str, str]:
    """Raises TopicError, which never shows values: they may be credentials."""
    if not isinstance(value, Mapping):
        raise TopicError(field, f"must be an object of names and strings, not {format_value(value)}")
    if len(value) > MOST_HEADERS:
        raise TopicError(field, f"has {len(value)} headers: at most {MOST_HEADERS} are allowed")
    seen: set[str] = set()
    for name, text in value.items():
        _check_header(f"{field}.{name}", name, text)
        if name.lower() in seen:
            raise TopicError(f"{field}.{name}", "is given twice: letter case makes no difference")
        seen.add(name.lower())
    return dict(value)


def _check_header(field: str, name: object, text: object) -> None:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise TopicError(field, "is not a header name: letters, digits and !#$%&'*+-.^_`|~, at most 128")
    if not may_be_sent(name):
        raise TopicError(field, "can't be set: it is part of the connection, or Evenlane's own")
    if not isinstance(text, str) or not is_value(text):
        raise TopicError(
            field, f"must be a single line of up to {MOST_HEADER_VALUE:,} characters, without blanks around it"
        )


def may_be_sent(name: str) -> bool:
    """Whether users may set a header of this name."""
    low = name.lower()
    return bool(_TOKEN.fullmatch(name)) and low not in _OF_THE_CONNECTION and not low.startswith(_OURS)


def is_value(text: str) -> bool:
    """Whether a header may have this value: nothing in it can end its line."""
    return len(text) <= MOST_HEADER_VALUE and bool(_VALUE.fullmatch(text)) and text == text.strip()
