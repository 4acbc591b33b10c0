"""Scans dead letters without their bodies: groups them by error, and finds those of a selection, in bounded memory.

Threads read the headers, as many texts would block a node's event loop for too long.
"""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from evenlane.engine.admin.dead_letters.by_error import ErrorTally
from evenlane.engine.base.background_work import low_priority
from evenlane.engine.core.message.dead_letter import read_head

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from evenlane.engine.admin.dead_letters.by_error import Selection
    from evenlane.engine.core.message.dead_letter import DeadLetter
    from evenlane.engine.core.ports import Head

P = ParamSpec("P")
T = TypeVar("T")

_AT_ONCE = 1_000  # heads
_YIELDED = 10_000  # sequences


class HeadScan:
    """Scans the dead letters of one subject up to the sequence `last`, oldest first. `heads` reads the next ones: it
    gets the subject, the first sequence, and the largest number of heads; it may raise Lost.
    """

    def __init__(
        self, heads: Callable[[str, int, int], Awaitable[list[Head]]], subject: str, cluster: str, last: int
    ) -> None:
        self._heads, self._subject, self._cluster, self._last = heads, subject, cluster, last

    async def tally(self, most: int) -> ErrorTally:
        """Group the oldest dead letters, at most `most`."""
        tally = ErrorTally()
        async for dead_letters in self._read():
            await _in_background(tally.add, dead_letters[: most - tally.counted])
            if tally.counted >= most:
                break
        return tally

    async def select(self, selection: Selection) -> array[int]:
        """Return the sequences of the selected dead letters."""
        found = array("Q")
        async for dead_letters in self._read():
            found.extend(each.sequence for each in await _in_background(_chosen, dead_letters, selection))
        return found

    async def find(self, selection: Selection, limit: int, most: int) -> list[DeadLetter]:
        """Return the first selected dead letters, at most `limit`, out of the oldest `most`."""
        found: list[DeadLetter] = []
        read = 0
        async for dead_letters in self._read():
            found += await _in_background(_chosen, dead_letters, selection)
            read += len(dead_letters)
            if len(found) >= limit or read >= most:
                break
        return found[:limit]

    async def _read(self) -> AsyncIterator[list[DeadLetter]]:
        start = 1
        while start <= self._last:
            heads = await self._heads(self._subject, start, _AT_ONCE)
            if not heads:
                return
            found = await _in_background(_read_all, heads, self._subject, self._cluster)
            yield [each for each in found if each.sequence <= self._last]
            start = heads[-1].sequence + 1


async def in_parts(sequences: Sequence[int]) -> AsyncIterator[Sequence[int]]:
    for start in range(0, len(sequences), _YIELDED):
        yield sequences[start : start + _YIELDED]


async def _in_background(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    def begin() -> T:
        with low_priority():
            return work(*arguments, **named)

    return await asyncio.to_thread(begin)


def _read_all(heads: Sequence[Head], subject: str, cluster: str) -> list[DeadLetter]:
    return [read_head(head, subject, cluster) for head in heads]


def _chosen(dead_letters: Sequence[DeadLetter], selection: Selection) -> list[DeadLetter]:
    return [each for each in dead_letters if selection.has(each)]
