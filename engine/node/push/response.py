"""What an endpoint answered, and how a failure reads in a dead letter. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

_QUOTED = 200  # bytes of an answer
_SHORTEST_SECRET = 4  # characters; shorter ones are found in any text
_BREAKS = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff]+")


class PushResponse(NamedTuple):
    """`start` is as much of the body as was read."""

    status: int
    retry_after: str | None
    start: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class PushFailed(Exception):
    """An attempt has failed; the text is for people, and without secrets. `is_outage`: the endpoint itself has, not
    only this message. What the endpoint `said` may repeat the message, so it isn't part of what is `for_logs`.
    """

    def __init__(self, text: str, *, is_outage: bool, said: str = "") -> None:
        super().__init__(f"{text}: {said}" if said else text)
        self.is_outage, self.for_logs = is_outage, text


def failure(answer: PushResponse, where: str, confidential: Iterable[str]) -> PushFailed:
    """Of an answer that is no success. `confidential`: what it may repeat, and nobody is to read."""
    what = f"HTTP {answer.status} from {where}"
    if 300 <= answer.status < 400:
        return PushFailed(f"{what}: redirects are not followed", is_outage=False)
    said = quoted(answer.start, confidential)
    return PushFailed(what, is_outage=answer.status >= 500, said=said)


def quoted(start: bytes, confidential: Iterable[str]) -> str:
    """The first 200 bytes of an answer in one line, without what is confidential."""
    text = start.decode("utf-8", "replace")
    for secret in sorted(confidential, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    text = _BREAKS.sub(" ", text).strip()
    return text.encode()[:_QUOTED].decode("utf-8", "ignore")


def where(url: str) -> str:
    """An address for people: without its query, which may hold a token."""
    return url.partition("?")[0]


def confidential_of(url: str, headers: Iterable[str]) -> tuple[str, ...]:
    """What of a topic's settings nobody is to read: the query, values of headers, and their words (`Bearer ...`)."""
    query = urlsplit(url).query
    words = [word for text in headers for word in text.split()]
    values = [part.partition("=")[2] for part in query.split("&")]
    return tuple(dict.fromkeys(filter(None, [query, *values, *headers, *words])))
