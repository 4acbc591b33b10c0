"""Stores which sequences of a lane are settled: a watermark, and a sparse map above it.

The map is divided into chunks of 4,096 sequences. An empty chunk is absent, a full chunk is a shared marker, and only a
mixed chunk costs memory: one byte per sequence. A lane whose watermark is pinned by one throttled message thus keeps
its map small, however far it runs ahead.
"""

from collections.abc import Iterable, Iterator, Sequence

_BITS = 12
_SIZE = 1 << _BITS
_MASK = _SIZE - 1
_FULL = bytearray(b"\x01" * _SIZE)
_EMPTY = bytearray(_SIZE)


class SettledSet:
    """A set of positive sequences. Runs are pairs (first, last), both inclusive.

    Invariants:
    - `watermark` is the largest w such that 1..w are all in the set; no chunk lies wholly below it.
    - A chunk is a byte per sequence, 1 for a member. A full one is always `_FULL` itself, which is shared and never
      modified; an empty one is removed.

    A set that begins with the watermark -1 never gets 0, so its watermark stays: each member can be removed again.
    """

    __slots__ = ("_chunks", "watermark")

    def __init__(self, watermark: int = 0) -> None:
        self.watermark = watermark
        self._chunks: dict[int, bytearray] = {}

    def __contains__(self, sequence: int) -> bool:
        if sequence <= self.watermark:
            return True
        chunk = self._chunks.get(sequence >> _BITS)
        return chunk is not None and chunk[sequence & _MASK] == 1

    def copy(self) -> "SettledSet":
        copied = SettledSet(self.watermark)
        copied._chunks = {n: chunk if chunk is _FULL else bytearray(chunk) for n, chunk in self._chunks.items()}
        return copied

    def add(self, sequence: int) -> None:
        self.add_run(sequence, sequence)

    def add_run(self, first: int, last: int) -> None:
        """Add first..last, and advance the watermark if possible."""
        if last <= self.watermark:
            return
        first = max(first, self.watermark + 1)
        if first == self.watermark + 1:
            self._advance(last)
            return
        while first <= last:
            end = min(last, first | _MASK)
            self._fill(first, end)
            first = end + 1

    def add_sorted(self, sequences: list[int]) -> None:
        """Add a rising list. The common case, a single run, costs one slice."""
        for first, last in runs(sequences):
            self.add_run(first, last)

    def discard(self, sequence: int) -> None:
        """Remove a sequence above the watermark."""
        number = sequence >> _BITS
        chunk = self._chunks.get(number)
        if chunk is None or sequence <= self.watermark:
            return
        if chunk is _FULL:
            chunk = self._chunks[number] = bytearray(_FULL)
        chunk[sequence & _MASK] = 0
        if 1 not in chunk:
            del self._chunks[number]

    def next_open(self, sequence: int) -> int:
        """The first sequence from `sequence` on that isn't in the set."""
        sequence = max(sequence, self.watermark + 1)
        while (chunk := self._chunks.get(sequence >> _BITS)) is not None:
            zero = -1 if chunk is _FULL else chunk.find(0, sequence & _MASK)
            if zero >= 0:
                return sequence - (sequence & _MASK) + zero
            sequence = (sequence | _MASK) + 1
        return sequence

    def above(self, start: int = 0) -> Iterator[tuple[int, int]]:
        """The runs (first, last) above the watermark and from `start` on, in rising order."""
        floor = max(start, self.watermark + 1)
        open_first = open_last = 0
        for number in sorted(self._chunks):
            for first, last in self._runs_in(number, floor):
                if open_first and first == open_last + 1:
                    open_last = last
                    continue
                if open_first:
                    yield open_first, open_last
                open_first, open_last = first, last
        if open_first:
            yield open_first, open_last

    def gaps(self) -> Iterator[tuple[int, int]]:
        """The runs (first, last) of non-members between the watermark and the highest member, in rising order."""
        before = self.watermark
        for first, last in self.above():
            yield before + 1, first - 1
            before = last

    @property
    def mixed_bytes(self) -> int:
        """The memory (bytes) of the mixed chunks."""
        return sum(_SIZE for chunk in self._chunks.values() if chunk is not _FULL)

    def _runs_in(self, number: int, floor: int) -> Iterator[tuple[int, int]]:
        return _runs_of(self._chunks[number], number << _BITS, floor)

    def chunk(self, number: int) -> bytearray:
        """A chunk with the members below the watermark, too."""
        base, chunk = number << _BITS, self._chunks.get(number, _EMPTY)
        below = self.watermark + 1 - base
        if below <= 0:
            return chunk
        return _FULL if below >= _SIZE else _FULL[:below] + chunk[below:]

    def chunk_numbers(self, floor: int) -> Iterator[int]:
        """The chunks that may have members from `floor` on, in rising order."""
        start, end = floor >> _BITS, (self.watermark >> _BITS) + 1
        yield from range(start, end)
        yield from sorted(number for number in self._chunks if number >= max(start, end))

    def _fill(self, first: int, last: int) -> None:
        number = first >> _BITS
        length = last - first + 1
        if length == _SIZE:
            self._chunks[number] = _FULL
            return
        chunk = self._chunks.get(number)
        if chunk is _FULL:
            return
        if chunk is None:
            chunk = self._chunks[number] = bytearray(_SIZE)
        start = first & _MASK
        if length == 1:
            chunk[start] = 1
        else:
            chunk[start : start + length] = _FULL[:length]
        if chunk == _FULL:
            self._chunks[number] = _FULL

    def _advance(self, at_least: int) -> None:
        self.watermark = at_least
        if not self._chunks:
            return
        number = (at_least + 1) >> _BITS
        while (chunk := self._chunks.get(number)) is not None:
            zero = -1 if chunk is _FULL else chunk.find(0, max(0, self.watermark + 1 - (number << _BITS)))
            if zero >= 0:
                self.watermark = (number << _BITS) + zero - 1
                break
            self.watermark = ((number + 1) << _BITS) - 1
            number += 1
        self._drop_below(self.watermark)

    def _drop_below(self, watermark: int) -> None:
        for number in [n for n in self._chunks if ((n + 1) << _BITS) - 1 <= watermark]:
            del self._chunks[number]


def common_runs(sets: Sequence[SettledSet], without: SettledSet, start: int) -> Iterator[tuple[int, int]]:
    """The runs (first, last) from `start` on that all `sets` contain and `without` doesn't, in rising order. A run ends
    where a chunk does.
    """
    lowest = min(sets, key=lambda each: each.watermark)
    for number in lowest.chunk_numbers(start):
        excluded = without.chunk(number)
        if excluded is _FULL:
            continue
        common = _FULL
        for each in sets:
            common = _both(common, each.chunk(number))
        if common is not _EMPTY and common != excluded:
            yield from _runs_of(_less(common, excluded), number << _BITS, start)


def _both(some: bytearray, others: bytearray) -> bytearray:
    if some is _FULL or others is _EMPTY:
        return others
    if others is _FULL or some is _EMPTY:
        return some
    return bytearray((_number(some) & _number(others)).to_bytes(_SIZE, "little"))


def _less(some: bytearray, excluded: bytearray) -> bytearray:
    if excluded is _EMPTY:
        return some
    return bytearray((_number(some) & ~_number(excluded)).to_bytes(_SIZE, "little"))


def _number(chunk: bytearray) -> int:
    return int.from_bytes(chunk, "little")


def _runs_of(chunk: bytearray, base: int, floor: int) -> Iterator[tuple[int, int]]:
    position = max(0, floor - base)
    while position < _SIZE:
        first = chunk.find(1, position)
        if first < 0:
            return
        after = chunk.find(0, first)
        position = _SIZE if after < 0 else after
        yield base + first, base + position - 1


def runs(rising: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Split a rising sequence of integers into runs (first, last)."""
    if isinstance(rising, list) and rising and rising[-1] - rising[0] == len(rising) - 1:
        yield rising[0], rising[-1]
        return
    first = last = None
    for value in rising:
        if last is not None and value <= last + 1:
            last = value
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = value
    if first is not None and last is not None:
        yield first, last
