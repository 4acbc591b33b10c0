"""How far a replay is: a bar on a terminal, else a line now and then."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from types import TracebackType

    from engine.replay import Progress as HowFar

_EVERY_S = 2.0


class Shown:
    """`with Shown(sys.stderr) as shown: ... shown.tell(progress)`."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        console = Console(file=stream, highlight=False, markup=False)
        self._stream, self._bar, self._told_at = stream, None, monotonic()
        self._quiet = quiet
        if console.is_terminal and not quiet:
            waits = TextColumn("{task.description}", markup=False)
            columns = (TextColumn("replayed"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), waits)
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tell(self, progress: HowFar) -> None:
        failed = f", {progress.failed:,} failed" if progress.failed else ""
        waits = f"; waits: {progress.waits}" if progress.waits else ""
        if self._bar is not None:
            done = progress.replayed + progress.failed
            self._bar.update(self._task, completed=done, total=progress.total, description=(failed + waits)[2:])
        elif (not self._quiet or waits) and monotonic() - self._told_at >= _EVERY_S:
            self._told_at = monotonic()
            print(f"replayed {progress.replayed:,} of {progress.total:,}{failed}{waits}", file=self._stream, flush=True)
