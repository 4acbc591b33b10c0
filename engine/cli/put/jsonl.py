"""Reads a file for `evenlane put --file`, and shows the progress."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.progress import ProgressDisplay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from evenlane.engine.producer.put_lines import PutTally

_CHUNK = 1 << 18  # bytes


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield the file's content as it arrives."""
    while chunk := await _read(descriptor):
        yield chunk


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
