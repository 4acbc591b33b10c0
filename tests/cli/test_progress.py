"""Progress of longer commands: a bar if stderr is a terminal, otherwise plain lines; never on stdout."""

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from evenlane.engine.cli.progress import ProgressDisplay, Stderr
from evenlane.engine.cli.put.jsonl import put_progress
from evenlane.engine.producer.put_lines import PutTally
from tests.support.stacks import LISTEN, ask
from tests.support.until import until

CURSOR_BACK = "\x1b[?25h"
AFTER_S = 0.02


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def plain(self) -> str:
        return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", self.getvalue())


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


async def test_bar_appears_after_a_while_with_totals_and_note(terminal):
    with ProgressDisplay("writing", "topic", stream=terminal, after_s=AFTER_S) as shown:
        shown.update(1_234, 10_000, "1,200 accepted")
        await until(lambda: "1,234 of 10,000 topics" in terminal.plain)
        shown.update(9_000, 10_000, "8,000 accepted")
        await until(lambda: "9,000 of 10,000 topics" in terminal.plain)
    assert "1,200 accepted" in terminal.plain
    assert "writing" in terminal.plain
    assert max(map(len, re.split(r"[\r\n]+", terminal.plain))) <= 80


def blocked(thread: threading.Thread) -> set[int]:
    """The signals that a thread blocks. Raises ProcessLookupError or FileNotFoundError for one that has ended."""
    [line] = re.findall(r"SigBlk:\s*(\w+)", Path(f"/proc/self/task/{thread.native_id}/status").read_text())
    return {number for number in signal.valid_signals() if int(line, 16) >> (number - 1) & 1}


async def test_threads_of_the_bar_block_signals(terminal):
    """Ctrl-C when the bar appears: the main thread may be in a call that only a signal to itself interrupts."""
    before, own_mask = set(threading.enumerate()), blocked(threading.current_thread())
    with ProgressDisplay("writing", "topics", stream=terminal, after_s=AFTER_S):
        assert own_mask == blocked(threading.current_thread())
        await until(lambda: "writing" in terminal.plain)
        masks = await until(lambda: [*_masks(before)])
        assert all({signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= mask for mask in masks)


def _masks(before):
    """Yield the signal masks of running threads that aren't among `before`."""
    for each in threading.enumerate():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if each not in before and each.native_id:
                yield blocked(each)


async def test_share_is_a_percentage_with_the_name_of_its_phase(terminal):
    with ProgressDisplay("hot-burst", stream=terminal, after_s=AFTER_S) as shown:
        shown.update(0.25, what="round 2")
        await until(lambda: "25%" in terminal.plain)
    assert "round 2" in terminal.plain


async def test_bar_appears_without_any_update(terminal):
    with ProgressDisplay("placing", stream=terminal, after_s=AFTER_S):
        await until(lambda: "placing" in terminal.plain)


def test_quick_command_shows_nothing(terminal):
    with ProgressDisplay("writing", "topic", stream=terminal, after_s=60.0) as shown:
        shown.update(1, 2)
    assert "" == terminal.getvalue()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
async def test_interrupt_or_error_erases_the_bar_and_restores_the_cursor(terminal, error):
    before = sys.stderr
    shown = ProgressDisplay("writing", "topic", stream=terminal, after_s=AFTER_S)

    async def fail():
        with shown:
            shown.update(1, 2)
            await until(lambda: "1 of 2" in terminal.plain)
            raise error

    with pytest.raises(error):
        await fail()
    assert terminal.getvalue().rindex(CURSOR_BACK) > terminal.getvalue().rindex("1 of 2")
    assert terminal.getvalue().endswith("\x1b[2K")  # erases the line of the bar
    assert sys.stderr is before
    length = len(terminal.getvalue())
    shown.update(2, 2)
    shown.stop()
    assert length == len(terminal.getvalue())


async def test_lines_for_stderr_appear_above_the_bar(terminal, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", terminal)
    lines = Stderr()
    with ProgressDisplay("putting", "message", after_s=AFTER_S) as shown:
        shown.update(5)
        await until(lambda: "5 messages" in terminal.plain)
        print("line 7: no JSON", file=lines)
        sys.stdout.write("of stdout\n")
    assert re.search(r"(^|\n|\r)line 7: no JSON\n", terminal.plain)
    assert "of stdout\n" == capsys.readouterr().out


def test_without_terminal_it_prints_nothing_or_plain_lines():
    silent, printed = io.StringIO(), io.StringIO()
    for stream, plain in ((silent, False), (printed, True)):
        with ProgressDisplay("replaying", "dead letter", plain=plain, stream=stream, plain_every_s=0.0) as shown:
            shown.update(1_200, 5_000, "3 failed")
            shown.update(1_300)
            shown.update(1)
    assert "" == silent.getvalue()
    lines = [
        "replaying 1,200 of 5,000 dead letters, 3 failed",
        "replaying 1,300 dead letters",
        "replaying 1 dead letter",
    ]
    assert lines == printed.getvalue().splitlines()


def test_plain_lines_are_rare(monkeypatch):
    """One every two seconds."""
    now = 0.0
    monkeypatch.setattr("evenlane.engine.cli.progress.monotonic", lambda: now)
    printed = io.StringIO()
    with ProgressDisplay("replaying", "dead letter", plain=True, stream=printed) as shown:
        for number in range(1_000):
            now = number / 200
            shown.update(number, 1_000)
    expected = ["replaying 400 of 1,000 dead letters", "replaying 800 of 1,000 dead letters"]
    assert expected == printed.getvalue().splitlines()


def test_dumb_terminal_gets_no_bar(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with ProgressDisplay("writing", "topic", plain=True, stream=terminal, plain_every_s=0.0) as shown:
        shown.update(1, 2)
    assert "writing 1 of 2 topics\n" == terminal.getvalue()


class TestPut:
    """Progress of `put --file`: the size of a file is known, the size of a pipe isn't."""

    def shown(self, descriptor, tally, monkeypatch):
        updates = []
        monkeypatch.setattr(ProgressDisplay, "update", lambda _, *progress, note="": updates.append((*progress, note)))
        with put_progress(descriptor, tally) as shown:
            shown.update()
        return updates

    def test_file_shows_the_share_that_was_read(self, tmp_path, monkeypatch):
        (tmp_path / "f").write_bytes(b"x" * 1_000)
        tally = PutTally(None)
        tally.put, tally.duplicates, tally.refusals = 10, 2, 1
        with (tmp_path / "f").open("rb") as file:
            os.read(file.fileno(), 250)
            assert [(0.25, "12 messages, 1 refused")] == self.shown(file.fileno(), tally, monkeypatch)

    def test_pipe_shows_the_number_of_messages(self, monkeypatch):
        reads, writes = os.pipe()
        tally = PutTally(None)
        tally.put = 7
        assert [(7, "")] == self.shown(reads, tally, monkeypatch)
        os.close(reads)
        os.close(writes)


SLOW = (
    f"{LISTEN}"
    "from functools import partial; from evenlane.engine.cli import progress\n"
    "progress.ProgressDisplay = partial(progress.ProgressDisplay, after_s=0.05)\n"
    "import evenlane.engine.admin.plan.simulate as s; import os\n"
    "def slow(fleet):\n"
    "    os.read(0, 1)\n"
    "    return {'nodes': fleet.nodes}\n"
    "s.simulate = slow\n"
    "from evenlane.engine.cli.main import main; main()\n"
)


class Run:
    """`plan simulate --json` with stderr on a real pseudo terminal. It takes until a byte comes on its stdin."""

    def __init__(self):
        self.terminal, theirs = pty.openpty()
        command = [sys.executable, "-c", SLOW, "plan", "simulate", "--nodes", "2"]
        environ = os.environ | {"TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [*command, "--projects", "3", "--json"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs, env=environ,
        )  # fmt: skip
        os.close(theirs)
        self.seen = ""

    def read(self) -> str:
        while select.select([self.terminal], [], [], 0)[0]:
            try:
                more = os.read(self.terminal, 65_536).decode()
            except OSError:  # the other end is closed
                break
            if not more:
                break
            self.seen += more
        return self.seen

    async def end(self) -> tuple[int, bytes]:
        # A terminal must be read, or it blocks its writer.
        try:
            await until(lambda: (self.read(), self.process.poll() is not None)[1])
        except AssertionError:
            ask(self.process)
            await until(lambda: (self.read(), self.process.poll() is not None)[1])
            raise AssertionError(f"it still runs; its output:\n{self.seen}") from None
        self.read()
        os.close(self.terminal)
        return self.process.returncode, self.process.stdout.read()

    def kill(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def begin():
    runs = []
    yield lambda: runs.append(Run()) or runs[-1]
    for run in runs:
        run.kill()


async def test_bar_on_a_real_terminal_leaves_stdout_alone(begin):
    run = begin()
    await until(lambda: "placing 128 partitions on 2 nodes" in run.read())
    run.process.stdin.write(b"\n")
    run.process.stdin.flush()
    code, out = await run.end()
    assert (0, {"nodes": 2}) == (code, json.loads(out))
    assert run.seen.rindex(CURSOR_BACK) > run.seen.rindex("placing")


async def test_ctrl_c_on_a_real_terminal_leaves_a_clean_line(begin):
    run = begin()
    await until(lambda: "placing" in run.read())
    run.process.send_signal(signal.SIGINT)
    code, out = await run.end()
    assert (130, b"") == (code, out)
    assert run.seen.rindex(CURSOR_BACK) > run.seen.rindex("placing")
    assert "Traceback" not in run.seen
