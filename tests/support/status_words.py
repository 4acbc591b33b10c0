"""Compares the statuses that surfaces show: their words, without moving figures, and their figures with those of the
same answer. Pure: tests/support/test_status_words.py shows that it finds errors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Described = dict[str, Any]
"""A status in JSON types."""

_MOMENT = re.compile(r"\d\d [A-Z][a-z]{2}, \d\d:\d\d UTC")
_SPOKEN = re.compile(r"\b\d[\d.]*[smhd]( \d+[smh])?(?=[,;.]|$)")
_WAITING = re.compile(r"\b(nothing waits|1 waits|[\d,]+ wait)\b(, the oldest for [^,;]+)?")
_NUMBER = re.compile(r"\d[\d,]*(\.\d+)?")
_MOMENTARY = {"waiting": {"label", "sentence", "remedy"}, "expiring": {"remedy"}}  # say why messages wait just then
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SLACK = 0.06  # of rates: they are shown with one digit, or two if they are below 1/s


def words(text: str) -> str:
    """Return a text with # for each figure, and "# wait" for each backlog: an oldest message is left out."""
    text = _WAITING.sub("# wait", _MOMENT.sub("#", text))
    return _NUMBER.sub("#", _SPOKEN.sub("#", text))


def statuses_of(document: Mapping[str, Any]) -> list[Described]:
    """Return all statuses of a project in an answer, the most urgent first."""
    return [document["status"], *document["also"]]


def different_words(surfaces: Mapping[str, list[Described]]) -> list[str]:
    """Return a sentence for each status that two surfaces say in other words. A status that only one of them shows is
    none: they may not look at the same moment.
    """
    first: dict[str, tuple[str, Described]] = {}
    return [
        f"{surface} says {field} {shown[field]!r} of {shown['name']}, and {other} {before[field]!r}"
        for surface, statuses in surfaces.items()
        for shown in statuses
        for other, before in [first.setdefault(shown["name"], (surface, shown))]
        for field in ("severity", "label", "sentence", "remedy")
        if words(shown[field]) != words(before[field]) and field not in _MOMENTARY.get(shown["name"], ())
    ]


def wrong_figures(document: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each figure in a status that isn't the figure of its own answer."""
    rates = document.get("rates", document)
    attempts = (rates["handled"] or 0.0) + (rates["failed"] or 0.0)
    expected = {
        r"([\d,.]+)/s arrive": rates["arriving"],
        r"([\d,.]+)/s expire": rates["expired"],
        r"([\d,.]+)/s of [\d,.]+/s": rates["failed"],
        r"/s of ([\d,.]+)/s": attempts,
    }
    found = []
    for status in statuses_of(document):
        sentence = str(status["sentence"])
        for pattern, figure in expected.items():
            match = re.search(pattern, sentence)
            if match and (figure is None or abs(_number(match[1]) - figure) > _SLACK + figure * 0.01):
                found.append(f"{sentence!r}, and its answer has {figure}/s")
        found += _wrong_backlog(status, document)
        found += [f"label {status['label']!r}: {sentence!r}" for _ in _wrong_share(status)]
    return found


def _wrong_backlog(status: Described, document: Mapping[str, Any]) -> Iterator[str]:
    sentence, backlog, oldest_s = status["sentence"], document["backlog"], document["oldest_seconds"]
    if status["name"] == "late" or not (match := _WAITING.search(sentence)):
        return  # `late` is about one priority
    if _number(match[1]) != backlog:
        yield f"{sentence!r}, and its answer has {backlog}"
    if (oldest := re.search(r"the oldest for ([\d.smhd ]+)", sentence)) and not _is_age(oldest[1], oldest_s):
        yield f"{sentence!r}, and the oldest of its answer has {oldest_s} s"


def _wrong_share(status: Described) -> Iterator[None]:
    """Yield once if the share in the label isn't that of the sentence."""
    share, said = (re.search(r"[\d.]+ (%|x)", status[field]) for field in ("label", "sentence"))
    if share and said and share[0] != said[0]:
        yield None


def _number(text: str) -> float:
    return 0.0 if text.startswith("nothing") else float(text.split(maxsplit=1)[0].replace(",", ""))


def _is_age(spoken: str, seconds: float | None) -> bool:
    parts = spoken.split()
    said = sum(float(part[:-1]) * _UNITS[part[-1]] for part in parts)
    unit = _UNITS[parts[-1][-1]]
    return seconds is not None and abs(said - seconds) <= (unit if unit > 1 else 0.51)
