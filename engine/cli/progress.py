"""How far a command is, once it takes longer: a bar on stderr if that is a terminal, else a plain line now and then.

stdout is never touched. Whatever takes less than `AFTER_S` shows nothing, and of a bar nothing stays behind. A thread
draws it, so that one sees that something goes on, whatever the command is busy with.
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

from evenlane.engine.base.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rich.progress import Progress

AFTER_S = 1.0
PLAIN_EVERY_S = 2.0
_PER_S = 5  # times that a bar is drawn
_WIDE = 20  # columns of the bar alone
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Shown:
    """`with Shown("putting", "message") as shown: ... shown.tell(3, 7)`. Without a `unit` it is told which share is
    done, from 0 to 1. With `plain` there are lines where there is no terminal.
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
        self._began = self._said_at = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """The time counts from now on."""
        self._began = self._said_at = monotonic()
        if self._drawn:
            self._timer = threading.Timer(self._after_s, self._draw)
            self._timer.daemon = True
            with _signals_left_to_others():
                self._timer.start()

    def stop(self) -> None:
        """Nothing of the bar stays. May be called twice."""
        with self._turn:
            timer, self._timer = self._timer, None
            bar, self._bar = self._bar, None
        if timer is not None:
            timer.cancel()
        if bar is not None:
            bar.stop()

    def tell(self, done: float, total: float | None = None, note: str = "", *, what: str = "") -> None:
        """`total` is left out as long as nobody knows it, and where shares are told. `what` has begun now."""
        self._done, self._note, self._what = done, note, what or self._what
        self._total = total if self._unit else 1.0
        if self._drawn:
            with self._turn:
                self._update()
        elif self._plain and monotonic() - self._said_at >= self._plain_every_s:
            self._said_at = monotonic()
            line = ", ".join(filter(None, [f"{self._what} {self._figures()}", note]))
            print(line, file=self._stream, flush=True)

    def _figures(self) -> str:
        if not self._unit:
            return f"{self._done:.0%}" if self._done else ""
        if self._total is None:
            return counted(self._done, self._unit) if self._done else ""
        return f"{self._done:,.0f} of {counted(self._total, self._unit)}"

    def _update(self) -> None:
        if self._bar is not None:
            known = self._total is not None and (self._unit or self._done)
            self._bar.update(
                self._bar.task_ids[0], completed=self._done, total=self._total if known else None,
                description=self._what, figures=self._figures(), note=self._note,
            )  # fmt: skip

    def _draw(self) -> None:
        """In the timer's thread."""
        with self._turn:
            if self._timer is not None:
                self._bar = _bar(self._stream, self._began)
                self._bar.add_task(self._what, total=None, figures="", note="")
                self._update()
                self._bar.start()


@contextmanager
def _signals_left_to_others() -> Iterator[None]:
    """Threads that are started inside, and those that they start, take none of these signals: the kernel likes to give
    one to a thread that just begins, and the main thread, if it waits in a system call, would not be woken by it.
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
        """What is left, if that can be told, else what has passed."""

        def render(self, task: Task) -> Text:
            left = task.time_remaining if task.total is not None else None
            return Text(_clock(monotonic() - began) if left is None else f"{_clock(left)} left")

    def text(what: str) -> TextColumn:
        return TextColumn(f"{{task.{what}}}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))

    columns = (
        text("description"), BarColumn(_WIDE), text("fields[figures]"), Time(), text("fields[note]"),
    )  # fmt: skip
    console = Console(file=stream, force_terminal=True, highlight=False, markup=False)
    # (what goes to stderr meanwhile stands above the bar; stdout is the command's own)
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, refresh_per_second=_PER_S)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


class Stderr(io.StringIO):
    """stderr as it is at the moment of writing: lines for it stand above a bar that has been drawn since."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()
