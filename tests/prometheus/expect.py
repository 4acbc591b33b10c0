"""Expected results of expressions: series, and bounds of their values."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from tests.prometheus.api import Series


class Span(NamedTuple):
    """From `low` to `high`, both included."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, float) and self.low <= value <= self.high

    def __add__(self, other: object) -> "Span":
        assert isinstance(other, Span)
        return Span(self.low + other.low, self.high + other.high)

    def over(self, value: float) -> "Span":
        return Span(self.low / value, self.high / value)

    def __str__(self) -> str:
        return f"{self.low:.4g}" if self.low == self.high else f"{self.low:.4g} to {self.high:.4g}"


ZERO, ONE, NEVER = Span(0.0, 0.0), Span(1.0, 1.0), Span(math.inf, math.inf)


def exactly(value: float) -> Span:
    return Span(value, value)


def about(value: float, part: float = 0.15, plus: float = 0.0) -> Span:
    """The value, give or take a share of it and a constant; never less than 0."""
    apart = value * part + plus
    return Span(max(0.0, value - apart), value + apart)


def total(spans: Sequence[Span]) -> Span:
    return sum(spans, ZERO)


class Check(NamedTuple):
    """A check of a result. `wrong` describes the errors, "" if there is none."""

    wrong: Callable[[Sequence[Series]], str]


def one(span: Span) -> Check:
    """One series, whatever its labels."""

    def wrong(came: Sequence[Series]) -> str:
        if len(came) != 1:
            return f"one series was expected, {span}"
        return "" if came[0].value in span else f"{span} was expected"

    return Check(wrong)


def by(
    labels: str,
    due: Mapping[str, Span],
    others: Span | None = None,
    most: int | None = None,
    may: Collection[str] = (),
) -> Check:
    """A series for each key of `due`: the values of `labels`, joined by blanks. Other series only within `others`, if
    given, but those in `may` may have any value; at most `most` series. A key `a|b` is the sum of the series that
    exist.
    """
    names = labels.split()
    parts = {key: key.split("|") for key in due}
    known = {each for several in parts.values() for each in several}

    def wrong(came: Sequence[Series]) -> str:
        found = {" ".join(series.labels.get(name, "") for name in names): series.value for series in came}
        wrongs = []
        for key, span in due.items():
            values = [found[each] for each in parts[key] if each in found]
            if not values or math.fsum(values) not in span:
                wrongs.append(f"{key} was expected: {span}")
        more = sorted(key for key in found.keys() - known - {*may} if others is None or found[key] not in others)
        wrongs += [
            f"{key} was not expected" if others is None else f"{key} was expected within {others}" for key in more
        ]
        if len(found) != len(came):
            wrongs.append(f"one series for each {labels} was expected")
        if most is not None and len(came) > most:
            wrongs.append(f"at most {most} series were expected")
        return "; ".join(wrongs)

    return Check(wrong)


def nothing(came: Sequence[Series]) -> str:
    return "nothing was expected" if came else ""


NOTHING = Check(nothing)


def alerts(*label_sets: Mapping[str, str]) -> Check:
    """Exactly these sets of labels, with any values."""

    def wrong(came: Sequence[Series]) -> str:
        due = {frozenset(labels.items()) for labels in label_sets}
        found = {frozenset(series.labels.items()) for series in came}
        missing = [str(sorted(labels)) for labels in due - found]
        more = [str(sorted(labels)) for labels in found - due]
        return "; ".join(
            [*(f"{each} was expected" for each in missing), *(f"{each} was not expected" for each in more)]
        )

    return Check(wrong)
