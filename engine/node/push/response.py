"""The response of an endpoint, and the text of a failure in a dead letter. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

_QUOTED = 200  # bytes of a response
_SHORTEST_SECRET = 4  # characters; shorter ones occur in any text
_BREAKS = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff]+")


class PushResponse(NamedTuple):
    """The response of an endpoint. `start` is the part of the body that was read."""

    status: int
    retry_after: str | None
    start: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class PushFailed(Exception):
    """A failed attempt. Its text is for people, and contains no secrets. `is_outage`: the endpoint as a whole has
    failed, not only this message. `excerpt` is from the response and may repeat the message, so `for_logs` leaves it
    out.
    """

    def __init__(self, text: str, *, is_outage: bool, excerpt: str = "") -> None:
        super().__init__(f"{text}: {excerpt}" if excerpt else text)
        self.is_outage, self.for_logs = is_outage, text


def failure(answer: PushResponse, where: str, confidential: Iterable[str]) -> PushFailed:
    """The error for a response without success. `confidential` texts are removed from the quoted body."""
    what = f"HTTP {answer.status} from {where}"
    if 300 <= answer.status < 400:
        return PushFailed(f"{what}: redirects are not followed", is_outage=False)
    excerpt = quote(answer.start, confidential)
    return PushFailed(what, is_outage=answer.status >= 500, excerpt=excerpt)


def quote(start: bytes, confidential: Iterable[str]) -> str:
    """The first 200 bytes of a response in one line, without confidential texts."""
    text = start.decode("utf-8", "replace")
    for secret in sorted(confidential, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    text = _BREAKS.sub(" ", text).strip()
    return text.encode()[:_QUOTED].decode("utf-8", "ignore")


def where(url: str) -> str:
    """A URL for people: without its query, which may hold a token."""
    return url.partition("?")[0]


def confidential_of(url: str, headers: Iterable[str]) -> tuple[str, ...]:
    """The confidential texts of a topic's settings: the query, the values of headers, and their words
    (`Bearer ...`).
    """
    query = urlsplit(url).query
    words = [word for text in headers for word in text.split()]
    values = [part.partition("=")[2] for part in query.split("&")]
    return tuple(dict.fromkeys(filter(None, [query, *values, *headers, *words])))
