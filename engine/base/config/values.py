"""Parsers of setting values. A parser takes a value from a file, variable or flag and returns the parsed one. It raises
ValueError or an EvenlaneError whose text shows the value and describes valid ones.
"""

import math
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from evenlane.engine.base import names
from evenlane.engine.base.durations import format_duration, parse_duration
from evenlane.engine.base.numbers import format_number
from evenlane.engine.base.sizes import format_size, parse_size

Parser = Callable[[object], object]
_Parser = TypeVar("_Parser", bound=Parser)

_FORMATTERS: dict[Parser, Callable[[Any], str]] = {}
"""How values are written, by the parser that reads them, where that isn't the plain number."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", re.ASCII)
_HTTPS = re.compile(r"https://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?", re.ASCII)
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})", re.ASCII)


def mask_secrets(text: str) -> str:
    """Return the text with all users, passwords and tokens in URLs replaced by `***`."""
    return re.sub(r"((?:^|,)(?:[A-Za-z+]*://)?)[^\s,]*@", r"\1***@", text)


def format_value(value: object) -> str:
    text = mask_secrets(value) if isinstance(value, str) else str(value)
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def write(parse: Parser, value: object) -> str:
    """Return a parsed value as `parse` reads it from a variable or flag. Credentials are masked."""
    match value:
        case _ if parse in _FORMATTERS:
            return _FORMATTERS[parse](value)
        case bool():
            return str(value).lower()
        case float():
            return format_number(value)
        case tuple():
            return ",".join(write(text, each) for each in value)
    return mask_secrets(str(value))


def _written_by(form: Callable[[Any], str], parse: _Parser) -> _Parser:
    _FORMATTERS[parse] = form
    return parse


def whole(low: int, high: int) -> Parser:
    def parse(value: object) -> int:
        number = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value.strip()) else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError(f"{format_value(value)} is not a whole number from {low} to {high}")
        return number

    return parse


def rate(value: object) -> float:
    """Messages per second, above 0."""
    number = float(value) if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= 1e9:
        raise ValueError(f"{format_value(value)} is not a number of messages a second above 0 and up to 1e9")
    return float(number)


def number(low: float, high: float) -> Parser:
    def parse(value: object) -> float:
        found = float(value) if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) else value
        if isinstance(found, bool) or not isinstance(found, int | float) or not low <= found <= high:
            raise ValueError(f"{format_value(value)} is not a number from {low:g} to {high:g}")
        return float(found)

    return parse


def share(value: object) -> float:
    """A share from 0 to 1: `0.9`, or `90%`."""
    percent = value.strip().removesuffix("%") if isinstance(value, str) and value.strip().endswith("%") else None
    try:
        return number(0, 1)(value) if percent is None else number(0, 100)(percent) / 100  # type: ignore[operator,return-value]
    except ValueError:
        raise ValueError(f"{format_value(value)} is not a share from 0% to 100%, such as 90% or 0.9") from None


def size(low: int, high: int) -> Parser:
    def parse(value: object) -> int:
        number = value
        if isinstance(value, str) and (found := parse_size(value)) is not None:
            number = found
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            limits = f"from {format_size(low)} to {format_size(high)}"
            raise ValueError(f"{format_value(value)} is not a size {limits}, as a number of bytes or like 64MiB")
        return number

    return _written_by(format_size, parse)


def duration(low: float, high: float) -> Parser:
    """Seconds, from `low` to `high`."""

    def parse(value: object) -> float:
        seconds = parse_duration(value)  # type: ignore[arg-type]  # it rejects other types
        if not low <= seconds <= high:
            raise ValueError(
                f"{format_value(value)} is not a duration from {format_duration(low)} to {format_duration(high)}"
            )
        return seconds

    return _written_by(format_duration, parse)


def whole_seconds(low: int, high: int) -> Parser:
    """Whole seconds, as etcd requires them."""

    def parse(value: object) -> float:
        seconds = duration(low, high)(value)
        if not isinstance(seconds, float) or not math.floor(seconds) == seconds:
            raise ValueError(f"{format_value(value)} is not a whole number of seconds")
        return seconds

    return _written_by(format_duration, parse)


def zero_or_duration(low: float, high: float) -> Parser:
    """Seconds, 0 or from `low` to `high`."""

    def parse(value: object) -> float:
        seconds = parse_duration(value)  # type: ignore[arg-type]  # it rejects other types
        if seconds and not low <= seconds <= high:
            limits = f"from {format_duration(low)} to {format_duration(high)}"
            raise ValueError(f"{format_value(value)} is neither 0 nor a duration {limits}")
        return seconds

    return _written_by(format_duration, parse)


def choice(*allowed: str) -> Parser:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value.lower() not in allowed:
            raise ValueError(f"{format_value(value)} is not one of {', '.join(allowed)}")
        return value.lower()

    return parse


def text(value: object) -> str:
    if not (stripped := _strip(value)):
        raise ValueError(f"{format_value(value)} is empty")
    return stripped


def name(check: Callable[[str], str]) -> Parser:
    return lambda value: check(_strip(value))


def _strip(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    raise ValueError(f"{format_value(value)} is not a string")


def file(value: object) -> Path:
    path = Path(text(value)).expanduser()
    if not path.is_file():
        raise ValueError(f"{format_value(value)} is not a file")
    return path


def folder(value: object) -> Path:
    path = Path(text(value)).expanduser()
    if not path.is_dir():
        raise ValueError(f"{format_value(value)} is not a folder")
    return path


def flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.strip().lower() not in ("true", "false"):
        raise ValueError(f"{format_value(value)} is not true or false")
    return value.strip().lower() == "true"


def list_of(parse_one: Parser, low: int = 1, high: int = 64) -> Callable[[object], tuple[object, ...]]:
    """Parse `a,b` or an array: each element once, in the given order."""

    def parse(value: object) -> tuple[object, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, Sequence):
            raise ValueError(f"{format_value(value)} is neither a list nor a string like a,b")  # noqa: TRY004
        found = tuple(parse_one(part) for part in parts)
        if not low <= len(found) <= high:
            raise ValueError(f"{format_value(value)} has {len(found)} elements instead of {low} to {high}")
        if len(set(found)) != len(found):
            raise ValueError(f"{format_value(value)} names an element twice")
        return found

    return parse


def nats_url(value: object) -> str:
    """`nats://host:port`; a bare `host` or `host:port` gets the scheme."""
    url = text(value)
    url = url if "://" in url else f"nats://{url}"
    if not _is_server(url, {"nats", "tls"}, has_login=True):
        raise ValueError(f"{format_value(value)} is not a NATS address: write nats://HOST:PORT or tls://HOST:PORT")
    return url.rstrip("/")


def http_url(value: object) -> str:
    """`http://host:port` or `https://host:port`, without a path."""
    url = text(value)
    if not _is_server(url, {"http", "https"}, has_login=False):
        raise ValueError(f"{format_value(value)} is not a monitoring address: write http://HOST:PORT")
    return url.rstrip("/")


def _is_server(url: str, schemes: Collection[str], *, has_login: bool) -> bool:
    """Whether this is the address of a server, without a path; `has_login`: user and password may be in it."""
    try:
        parts = urlsplit(url)
        is_host = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    extra = parts.path.strip("/") or parts.query or parts.fragment or (not has_login and "@" in parts.netloc)
    return is_host and not extra and not any(c.isspace() for c in url)


MEMORY = "memory://"
_MEMORY = re.compile(r"memory://[A-Za-z0-9_-]{0,64}", re.ASCII)


def store(value: object) -> tuple[object, ...]:
    """`memory://` or `memory://NAME`, or NATS servers as in `nats`."""
    found = list_of(_store_url)(value)
    if len(found) > 1 and any(str(url).startswith(MEMORY) for url in found):
        raise ValueError(f"{format_value(value)} names several stores: {MEMORY} can't be combined with others")
    return found


def _store_url(value: object) -> str:
    url = text(value)
    if not url.startswith("memory:"):
        return nats_url(url)
    if not _MEMORY.fullmatch(url):
        raise ValueError(
            f"{format_value(value)} is not a store: write {MEMORY} or {MEMORY}NAME, of letters, digits, _ and -"
        )
    return url


_INBOX = re.compile(r"_INBOX(\.[A-Za-z0-9_-]{1,64}){0,4}", re.ASCII)


def inbox(value: object) -> str:
    """`_INBOX`, or more words after it."""
    prefix = text(value)
    if not _INBOX.fullmatch(prefix):
        raise ValueError(
            f"{format_value(value)} is not a prefix of reply subjects: write _INBOX.NAME, of letters, digits, _ and -"
        )
    return prefix


def host_port(value: object) -> str:
    address = text(value)
    match = _HOST_PORT.fullmatch(address)
    if not match or not 0 < int(match[2]) < 65_536:
        raise ValueError(f"{format_value(value)} is not an etcd address: write HOST:PORT, such as 127.0.0.1:2379")
    return address


def listen_address(value: object) -> str:
    """`HOST:PORT` to listen on. Port 0 is any free one."""
    address = text(value)
    match = _HOST_PORT.fullmatch(address)
    if not match or int(match[2]) >= 65_536:
        raise ValueError(f"{format_value(value)} is not an address to listen on: write HOST:PORT, such as 0.0.0.0:6000")
    return address


def https_url(value: object) -> str:
    """`https://HOST:PORT`, without a path."""
    url = text(value)
    if not _HTTPS.fullmatch(url):
        raise ValueError(f"{format_value(value)} is not an address of an API: write https://HOST:PORT")
    return url.rstrip("/")


def kubernetes_name(value: object) -> str:
    """A name of Kubernetes, which is a DNS label or several with dots."""
    found = text(value)
    if len(found) > 253 or not _KUBERNETES_NAME.fullmatch(found):
        raise ValueError(
            f"{format_value(value)} is not a name in Kubernetes: write lower-case letters, digits, '-' and '.'"
        )
    return found


PRIORITIES = list_of(name(names.check_priority_name), high=8)
