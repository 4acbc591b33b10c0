"""Puts messages from JSON lines: splits, puts and counts them in bounded memory."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, TextIO

from evenlane.engine.errors import ConfigError, EvenlaneError, PayloadTooLarge, public_name
from evenlane.engine.producer.json_lines import parse_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable

    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.producer.put import Outcome, Put

LONGEST_LINE = 128 << 20  # bytes; the largest maximum payload of a NATS server, in base64
_MOST_LISTED = 10_000  # refusals


class PutTally:
    """Results of the lines. Refusals are printed to `live` at once, otherwise they are listed in the document."""

    def __init__(self, live: TextIO | None = None) -> None:
        self.put = self.duplicates = self.refusals = 0
        self._live = live
        self._listed: list[dict[str, object]] = []

    def add_refusal(self, line: int, error: Exception) -> None:
        self.refusals += 1
        text = " ".join(str(error).split())
        if self._live is not None:
            print(f"line {line}: {text}", file=self._live)
        elif len(self._listed) < _MOST_LISTED:
            self._listed.append({"line": line, "error": text, "type": public_name(error)})

    def document(self) -> dict[str, object]:
        """Return the document. `refused_unlisted` is included only if there were too many refusals to list."""
        listed = sorted(self._listed, key=lambda refusal: str(refusal["line"]).zfill(20))
        result: dict[str, object] = {"put": self.put, "duplicates": self.duplicates, "refused": listed}
        if self.refusals > len(listed):
            result["refused_unlisted"] = self.refusals - len(listed)
        return result


async def put_lines(
    producer: Producer,
    chunks: AsyncIterable[bytes],
    tally: PutTally,
    on_outcome: Callable[[], None] = lambda: None,
    *,
    parse: Callable[[bytes], Put] = parse_line,
    longest: int = LONGEST_LINE,
) -> None:
    """Put all lines of a text that arrives in chunks. `on_outcome` is called when a line has its outcome. A line of
    more than `longest` bytes is refused, and so is one for which `parse` raises ConfigError.
    """
    lines: dict[int, int] = {}  # for puts in flight: number of the put, from 0 -> its line
    puts_made = count()

    async def puts() -> AsyncIterator[Put]:
        async for number, raw in split_lines(chunks, tally, longest):
            try:
                put = parse(raw)
            except ConfigError as error:
                tally.add_refusal(number, error)
            else:
                lines[next(puts_made)] = number
                yield put

    def count_outcome(number: int, outcome: Outcome) -> None:
        line = lines.pop(number)
        if isinstance(outcome, Exception):
            tally.add_refusal(line, outcome)
        elif outcome.duplicate:
            tally.duplicates += 1
        else:
            tally.put += 1
        on_outcome()

    await producer.put_each(puts(), count_outcome)


async def split_lines(
    chunks: AsyncIterable[bytes], tally: PutTally, longest: int = LONGEST_LINE
) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the non-blank lines with their numbers from 1; a line that is too long is refused."""
    number, parts, size = 1, [], 0  # `parts` are those of an incomplete line
    async for chunk in chunks:
        first, *more = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > longest:
            parts = []  # skip to the line's end without keeping it
        for following in more:
            if size > longest:
                tally.add_refusal(number, _too_long(longest))
            elif (raw := b"".join(parts)) and not raw.isspace():
                yield number, raw
            number, parts, size = number + 1, [following], len(following)
    if size > longest:
        tally.add_refusal(number, _too_long(longest))
    elif (raw := b"".join(parts)) and not raw.isspace():
        yield number, raw


def _too_long(longest: int) -> EvenlaneError:
    return PayloadTooLarge(f"it is longer than {longest:,} bytes")
