"""Puts messages from JSON lines: reads, puts and counts them in bounded memory."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from base64 import b64decode
from binascii import Error as Base64Error
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import msgspec

from evenlane.engine.base.durations import parse_duration, parse_instant
from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.progress import ProgressDisplay
from evenlane.engine.errors import ConfigError
from evenlane.engine.producer.put import Put
from evenlane.quota.topics.strict_json import BOM, has_bom

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.producer.put import Outcome

T = TypeVar("T")

LONGEST_LINE = 128 << 20  # bytes; the largest maximum payload of a NATS server, in base64
_CHUNK = 1 << 18  # bytes
_MOST_LISTED = 10_000  # refusals


class JsonLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One line. `delay` and `ttl` are seconds or text like 5s; `due` is RFC 3339."""

    project: str
    body: str | None = None
    body_base64: str | None = None
    priority: str | None = None
    key: str | None = None
    group: int | None = None
    delay: float | str | None = None
    due: str | None = None
    ttl: float | str | None = None
    id: str | None = None
    headers: dict[str, str] | None = None


class PutTally:
    """Results of the lines. Refusals are printed to `live` at once, otherwise they are listed in the document."""

    def __init__(self, live: TextIO | None) -> None:
        self.put = self.duplicates = self.refusals = 0
        self._live = live
        self._listed: list[dict[str, object]] = []

    def add_refusal(self, line: int, error: object) -> None:
        self.refusals += 1
        text = " ".join(str(error).split())
        if self._live is not None:
            print(f"line {line}: {text}", file=self._live)
        elif len(self._listed) < _MOST_LISTED:
            self._listed.append({"line": line, "error": text})

    def document(self) -> dict[str, object]:
        """Return the document. `refused_unlisted` is included only if there were too many refusals to list."""
        listed = sorted(self._listed, key=lambda refusal: str(refusal["line"]).zfill(20))
        result: dict[str, object] = {"put": self.put, "duplicates": self.duplicates, "refused": listed}
        if self.refusals > len(listed):
            result["refused_unlisted"] = self.refusals - len(listed)
        return result


async def put_lines(
    producer: Producer, descriptor: int, tally: PutTally, on_outcome: Callable[[], None] = lambda: None
) -> None:
    """Put all lines. `on_outcome` is called when a line has its outcome."""
    lines: dict[int, int] = {}  # for puts in flight: number of the put, from 0 -> its line
    puts_made = count()

    async def puts() -> AsyncIterator[Put]:
        async for number, raw in read_lines(descriptor, tally):
            try:
                put = parse_line(raw)
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


def parse_line(raw: bytes) -> Put:
    """Parse a line. Raises ConfigError with the error in the line."""
    if has_bom(raw):
        raise ConfigError(f"it {BOM}")
    try:
        line = _lines.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(_plain(str(error))) from None
    return Put(
        line.project,
        _body(line),
        line.priority,
        line.key,
        line.group,
        _time("delay", line.delay, parse_duration),
        _time("due", line.due, parse_instant),
        _time("ttl", line.ttl, parse_duration),
        line.id,
        line.headers,
    )


_lines = msgspec.json.Decoder(JsonLine)


def _plain(text: str) -> str:
    """Translate a message of msgspec for the file's author."""
    for theirs, ours in _WORDS:
        text = text.replace(theirs, ours)
    return text


_WORDS = (
    ("JSON is malformed", "it isn't JSON"),
    ("Input data was truncated", "it isn't JSON: it ends too early"),
    ("Object missing required field", "it lacks the field"),
    ("Object contains unknown field", "it has the unknown field"),
    ("Expected `object`, got", "it must be a JSON object, not"),
    ("Expected", "expected"),
    (" | null`", "`"),
    (" - at `$.", " in `"),
    ("[...]`", "`"),
    (" - at `$`", ""),
)


def _time(field: str, value: Any, parse: Callable[[Any], T]) -> T | None:
    try:
        return None if value is None else parse(value)
    except ConfigError as error:
        raise ConfigError(f"`{field}` {error}") from None


def _body(line: JsonLine) -> bytes:
    if (line.body is None) == (line.body_base64 is None):
        raise ConfigError("it needs either `body`, a string, or `body_base64`")
    if line.body_base64 is None:
        try:
            return str(line.body).encode()
        except UnicodeEncodeError:
            raise ConfigError("`body` can't be encoded in UTF-8: write it as `body_base64`") from None
    try:
        return b64decode(line.body_base64, validate=True)
    except (Base64Error, ValueError):
        raise ConfigError("`body_base64` is not base64") from None


async def read_lines(descriptor: int, tally: PutTally) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the non-blank lines with their numbers from 1; a line that is too long is refused."""
    number, parts, size = 1, [], 0  # `parts` are those of an incomplete line
    while chunk := await _read(descriptor):
        first, *more = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > LONGEST_LINE:
            parts = []  # skip to the line's end without keeping it
        for following in more:
            if size > LONGEST_LINE:
                tally.add_refusal(number, f"it is longer than {LONGEST_LINE:,} bytes")
            elif (raw := b"".join(parts)) and not raw.isspace():
                yield number, raw
            number, parts, size = number + 1, [following], len(following)
    if size > LONGEST_LINE:
        tally.add_refusal(number, f"it is longer than {LONGEST_LINE:,} bytes")
    elif (raw := b"".join(parts)) and not raw.isspace():
        yield number, raw


async def _read(descriptor: int) -> bytes:
    """Return the next bytes as soon as there are any, b"" at the end.

    Reads in a daemon thread: a thread that waits for a terminal or a pipe must not keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()

    def settle(read: bytes | OSError) -> None:
        if arrived.done():
            return
        if isinstance(read, OSError):
            arrived.set_exception(read)
        else:
            arrived.set_result(read)

    def read() -> None:
        try:
            got: bytes | OSError = os.read(descriptor, _CHUNK)
        except OSError as error:
            got = error
        try:
            loop.call_soon_threadsafe(settle, got)
        except RuntimeError:
            return  # the loop has been closed meanwhile

    threading.Thread(target=read, name="lines", daemon=True).start()
    return await arrived


class PutProgress:
    """Shows the progress of `put --file`, by the part of the file that was read. The size of a pipe is unknown. Call
    `update` when a line has its outcome.
    """

    def __init__(self, shown: ProgressDisplay, tally: PutTally, descriptor: int, size: int) -> None:
        self._shown, self._tally, self._descriptor, self._size = shown, tally, descriptor, size

    def update(self) -> None:
        tally = self._tally
        done, refused = tally.put + tally.duplicates, f"{tally.refusals:,} refused" if tally.refusals else ""
        if self._size:
            read = os.lseek(self._descriptor, 0, os.SEEK_CUR)
            note = ", ".join(filter(None, [format_count(done, "message"), refused]))
            self._shown.update(min(1.0, read / self._size), note=note)
        else:
            self._shown.update(done, note=refused)


@contextmanager
def put_progress(descriptor: int, tally: PutTally) -> Iterator[PutProgress]:
    found = os.fstat(descriptor)
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    with ProgressDisplay("putting", "" if size else "message") as shown:
        yield PutProgress(shown, tally, descriptor, size)
