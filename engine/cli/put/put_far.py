"""How far `put --file` is: by what has been read of a file; of a pipe nobody knows how much there will be."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenlane.engine.base.plural import counted
from evenlane.engine.cli.progress import Shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.cli.put.jsonl import Tally


class RemoteTarget:
    """`tell` when something has become of a line."""

    def __init__(self, shown: Shown, tally: Tally, descriptor: int, size: int) -> None:
        self._shown, self._tally, self._descriptor, self._size = shown, tally, descriptor, size

    def tell(self) -> None:
        tally = self._tally
        done, refused = tally.put + tally.duplicates, f"{tally.refusals:,} refused" if tally.refusals else ""
        if self._size:
            read = os.lseek(self._descriptor, 0, os.SEEK_CUR)
            note = ", ".join(filter(None, [counted(done, "message"), refused]))
            self._shown.tell(min(1.0, read / self._size), note=note)
        else:
            self._shown.tell(done, note=refused)


@contextmanager
def remote_target(descriptor: int, tally: Tally) -> Iterator[RemoteTarget]:
    found = os.fstat(descriptor)
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    with Shown("putting", "" if size else "message") as shown:
        yield RemoteTarget(shown, tally, descriptor, size)
