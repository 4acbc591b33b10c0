"""Shows the progress of a longer command: a bar on stderr if it is a terminal, otherwise an occasional plain line.

stdout is never touched. A command that takes less than `AFTER_S` shows nothing, and a bar leaves nothing behind. A
thread draws the bar, so that it moves whatever the command is busy with.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Self, TextIO

from evenlane.engine.base.plural import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rich.progress import Progress

AFTER_S = 1.0
PLAIN_EVERY_S = 2.0
_PER_S = 5  # redraws of the bar
_WIDE = 20  # columns of the bar alone
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ProgressDisplay:
    """Progress of a command: `with ProgressDisplay("putting", "message") as shown: ... shown.update(3, 7)`.
    Without a `unit`, `update` takes the share that is done, from 0 to 1. With `plain`, it prints lines if there is no
    terminal.
    """

    def __init__(
        self,
        what: str,
        unit: str = "",
        *,
        plain: bool = False,
        stream: TextIO | None = None,
        after_s: float = AFTER_S,
        plain_every_s: float = PLAIN_EVERY_S,
    ) -> None:
        self._after_s, self._plain_every_s = after_s, plain_every_s
        self._what, self._unit, self._stream = what, unit, sys.stderr if stream is None else stream
        self._drawn = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._plain = plain and not self._drawn
        self._done, self._total, self._note = 0.0, None if unit else 1.0, ""
        self._turn = threading.Lock()
        self._timer: threading.Timer | None = None
        self._bar: Progress | None = None
        self._began = self._shown_at = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the timer."""
        self._began = self._shown_at = monotonic()
        if self._drawn:
            self._timer = threading.Timer(self._after_s, self._draw)
            self._timer.daemon = True
            with _signals_left_to_others():
                self._timer.start()

    def stop(self) -> None:
        """Stop, and erase the bar. May be called twice."""
        with self._turn:
            timer, self._timer = self._timer, None
            bar, self._bar = self._bar, None
        if timer is not None:
            timer.cancel()
        if bar is not None:
            bar.stop()

    def update(self, done: float, total: float | None = None, note: str = "", *, what: str = "") -> None:
        """Report progress. `total` is omitted while unknown, and for shares. `what` is the step that has begun."""
        self._done, self._note, self._what = done, note, what or self._what
        self._total = total if self._unit else 1.0
        if self._drawn:
            with self._turn:
                self._update()
        elif self._plain and monotonic() - self._shown_at >= self._plain_every_s:
            self._shown_at = monotonic()
            line = ", ".join(filter(None, [f"{self._what} {self._figures()}".rstrip(), note]))
            print(line, file=self._stream, flush=True)

    def _figures(self) -> str:
        if not self._unit:
            return f"{self._done:.0%}" if self._done else ""
        if self._total is None:
            return format_count(self._done, self._unit) if self._done else ""
        return f"{self._done:,.0f} of {format_count(self._total, self._unit)}"

    def _update(self) -> None:
        if self._bar is not None:
            known = self._total is not None and (self._unit or self._done)
            self._bar.update(
                self._bar.task_ids[0], completed=self._done, total=self._total if known else None,
                description=self._what, figures=self._figures(), note=self._note,
            )  # fmt: skip

    def _draw(self) -> None:
        """Draw the bar; runs in the timer's thread."""
        with self._turn:
            if self._timer is not None:
                self._bar = _bar(self._stream, self._began)
                self._bar.add_task(self._what, total=None, figures="", note="")
                self._update()
                self._bar.start()


@contextmanager
def _signals_left_to_others() -> Iterator[None]:
    """Block SIGINT, SIGTERM and SIGHUP in threads that are started inside `with`, and in threads that those start. The
    kernel often delivers a signal to a thread that is just starting. That doesn't wake up a main thread that waits in
    a system call.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _bar(stream: TextIO, began: float) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Time(ProgressColumn):
        """The time left if known, otherwise the time elapsed."""

        def render(self, task: Task) -> Text:
            left = task.time_remaining if task.total is not None else None
            return Text(_clock(monotonic() - began) if left is None else f"{_clock(left)} left")

    def text(what: str) -> TextColumn:
        return TextColumn(f"{{task.{what}}}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))

    columns = (
        text("description"), BarColumn(_WIDE), text("fields[figures]"), Time(), text("fields[note]"),
    )  # fmt: skip
    console = Console(file=stream, force_terminal=True, highlight=False, markup=False)
    # output to stderr appears above the bar meanwhile; stdout belongs to the command
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, refresh_per_second=_PER_S)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


class Stderr(io.StringIO):
    """Writes to the present stderr, so that lines appear above a bar drawn later."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()
