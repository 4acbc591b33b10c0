"""Groups dead letters by their error, and selects those of a group. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.base.durations import format_instant
from evenlane.engine.core.message.error_pattern import unify_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.message.dead_letter import DeadLetter

_KEY_LENGTH = 12  # hexadecimal digits: 10,000 errors of a project share a key once in five million projects


class Selection(NamedTuple):
    """A choice of dead letters of one project: those with the error of this key, with a sequence up to `until`. None:
    all of them.
    """

    error: str | None = None
    until: int | None = None

    def has(self, dead_letter: DeadLetter) -> bool:
        """Whether the dead letter has the error; `until` is not looked at."""
        return self.error is None or self.error == error_key(dead_letter)


ALL = Selection()


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Dead letters with the same error. `reason` and `error` are the common pattern, `example` is the newest error as
    it was written. `first` and `last` are the times of death of the oldest and newest one in unix ns, `last_seq` is its
    sequence.
    """

    key: str
    reason: str
    error: str
    example: str
    count: int
    first: int
    last: int
    last_seq: int

    def document(self) -> dict[str, Any]:
        """In JSON's types."""
        return {
            "key": self.key, "reason": self.reason, "error": self.error, "example": self.example, "count": self.count,
            "first_at": format_instant(self.first), "last_at": format_instant(self.last), "last_seq": self.last_seq,
        }  # fmt: skip


def error_key(dead_letter: DeadLetter) -> str:
    """Return the key of the dead letter's group."""
    return _key(unify_error(dead_letter.reason), unify_error(dead_letter.error))


class ErrorTally:
    """Groups dead letters that are added in the order of their sequences. `counted` is their number."""

    def __init__(self) -> None:
        self.counted = 0
        self._found: dict[tuple[str, str], ErrorGroup] = {}

    def add(self, dead_letters: Iterable[DeadLetter]) -> None:
        for each in dead_letters:
            self.counted += 1
            pattern = unify_error(each.reason), unify_error(each.error)
            known = self._found.get(pattern)
            key, count, first = (
                (_key(*pattern), 0, each.died_at) if known is None else (known.key, known.count, known.first)
            )
            self._found[pattern] = ErrorGroup(key, *pattern, each.error, count + 1, first, each.died_at, each.sequence)

    def groups(self) -> list[ErrorGroup]:
        """Return the groups, the largest first."""
        return sorted(self._found.values(), key=lambda group: (-group.count, -group.last_seq))


def _key(reason: str, error: str) -> str:
    return sha256(f"{reason}\n{error}".encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_LENGTH]
