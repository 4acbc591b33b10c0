"""Carries out the steps of a page in a folder of its own.

- ` ```console `: a line that begins with `$` is a command, and the lines below are its output.
- ` ```python title="shop.py" `: a file that the reader makes.
- ` ```python ` that runs an event loop: a program.
- `<!-- test: COMMAND -->`: a step from another page, which the reader has taken before.
- `<!-- stop: COMMAND -->`: the reader ends this command of the page with Ctrl-C.

A command that prints `ready ...` continues until the end of the page, as in another terminal. Numbers, times and sizes
differ from run to run, so they compare as equal; `...` matches any lines.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from evenlane.engine.runtime.embedded.ports import free_port
from tests.support.until import poll

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
WARM = ROOT / "tests" / "docs" / "warm.py"
_FENCE = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$|^<!-- test: (?P<before>.+?) -->$"
    r"|^<!-- stop: (?P<stopped>.+?) -->$",
    re.MULTILINE | re.DOTALL,
)
# Commands that serve, and those that take long anyway, are processes of their own; the others are forked: see warm.py.
_EVENLANE = f"""#!/bin/sh
case $1 in
up | run | demo | bench | report) exec {sys.executable} -c 'from evenlane.engine.cli.main import main; main()' "$@" ;;
*) exec {sys.executable} -ISE {WARM} SOCKET "$@" ;;
esac
"""
_READS = re.compile(
    r"(evenlane (why|plan|dlq list|(topics|subscriptions) (get|list|history)|backlog peek)"
    r"|python -m examples\.iot (data|refused)|cat|curl|grep)\b"
)
_TIMEOUT_S = 120.0
_LONGEST_S = 400.0  # of one command, such as a report on a busy machine
_HOST = "web-1"  # the host name in the pages


class Step(NamedTuple):
    """A command, and the output that the page shows; or the end of a command that serves."""

    command: str
    output: list[str]
    stops: bool = False

    @property
    def serves(self) -> bool:
        """Whether it continues after its output."""
        return any(line.startswith("ready ") for line in self.output)


def steps(text: str) -> list[Step]:
    """Return the steps of a page; a file is made by a command, too."""
    found: list[Step] = []
    for fence in _FENCE.finditer(text):
        language, title, body = fence["language"], fence["title"], fence["body"]
        if fence["before"]:
            found.append(Step(fence["before"], []))
        elif fence["stopped"]:
            found.append(Step(fence["stopped"], [], stops=True))
        elif language == "console":
            found += _console(body)
        elif language == "python" and title:
            found.append(Step(f"printf %s {shlex.quote(body)} > {shlex.quote(title)}", []))
        elif language == "python" and "asyncio.run(" in body:
            found.append(Step(f"python -c {shlex.quote(body)}", []))
    return found


def _console(body: str) -> list[Step]:
    found: list[Step] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(Step(line.removeprefix("$ "), []))
        elif found and found[-1].command.endswith("\\"):
            found[-1] = Step(f"{found[-1].command}\n{line}", [])
        else:
            found[-1].output.append(line)
    return found


def normalised(line: str) -> str:
    """Return the line without the differences between runs."""
    line = line.replace(socket.gethostname(), _HOST).replace(_HOST, "HOST")
    line = re.sub(r"\d[\d,.:]*", "0", line)
    line = re.sub(r"(?:0 ?(?:ms|us|[dhms])\b ?)+", "0s ", line)
    return " ".join(line.split())


def shows(printed: str, output: list[str], *, in_order: bool) -> bool:
    """Return whether all lines of a page were printed."""
    left = [normalised(line) for line in printed.splitlines()]
    for line in map(normalised, output):
        if line in {"...", ""}:
            continue
        if line not in left:
            return False
        left = left[left.index(line) + 1 :] if in_order else left
    return True


@contextlib.contextmanager
def warm_process(folder: Path) -> Iterator[Path]:
    """Yield the socket of a process that runs commands: see warm.py."""
    path = folder / "socket"
    environ = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    server = subprocess.Popen([sys.executable, "-m", "tests.docs.warm", path], stdin=subprocess.PIPE, env=environ)
    assert poll(lambda: path.exists() or server.poll() is not None, _TIMEOUT_S)
    assert server.poll() is None
    yield path
    server.communicate(timeout=_TIMEOUT_S)


class Terminal:
    """`with Terminal(folder, socket) as terminal`: its processes end with it. `socket` is that of `warm_process`."""

    def __init__(self, folder: Path, warm_socket: Path) -> None:
        self._folder = folder
        self._ports = {port: str(free_port()) for port in ("4222", "2379", "8080", "1883")}
        self._running: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}  # by command
        self._begun = 0
        (folder / "bin").mkdir()
        programs = {
            "evenlane": _EVENLANE.replace("SOCKET", shlex.quote(str(warm_socket))),
            "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        }
        for name, text in programs.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        (folder / "examples").symlink_to(ROOT / "examples")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, _output in reversed([*self._running.values()]):
            _end(process)

    def do(self, step: Step) -> None:
        """Carry out a step. Raises AssertionError if it fails or its output differs from the page."""
        if step.stops:
            _end(self._running.pop(step.command)[0])
        elif step.serves:
            self._begin(step)
        else:
            self._run(step)

    def _begin(self, step: Step) -> None:
        output = self._folder / f"output-{self._begun}"
        self._begun += 1
        with output.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", self._own(step.command)], cwd=self._folder, env=self._environ(), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._running[step.command] = process, output

        def printed() -> str:
            return output.read_text(errors="replace")

        shown = poll(lambda: shows(printed(), step.output, in_order=False), _TIMEOUT_S)
        assert shown, f"$ {step.command}\n{printed()}"

    def _run(self, step: Step) -> None:
        """Run the command; one that only reads runs again until its output is right."""

        def run() -> bool:
            nonlocal done
            done = subprocess.run(
                ["bash", "-c", self._own(step.command)], cwd=self._folder, env=self._environ(),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LONGEST_S, check=False,
            )  # fmt: skip
            return done.returncode == 0 and shows(done.stdout, step.output, in_order=True)

        done = None
        right = poll(run, _TIMEOUT_S if _READS.match(step.command) else 0, pause_s=0.5)
        assert right, f"$ {step.command}\n{done.stdout}{done.stderr}(exit code {done.returncode})"

    def _own(self, command: str) -> str:
        """Replace the ports in the page by free ones."""
        return re.sub(r"\b(4222|2379|8080|1883)\b", lambda port: self._ports[port[0]], command)

    def _environ(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")}
        nats, etcd = f"nats://127.0.0.1:{self._ports['4222']}", f"127.0.0.1:{self._ports['2379']}"
        path = f"{self._folder / 'bin'}:{Path(sys.executable).parent}:{own['PATH']}"
        quick = {"EVENLANE_PARTITIONS": "16", "EVENLANE_STORAGE": "memory"}  # so that streams are made quickly
        return own | quick | {"PATH": path, "EVENLANE_NATS": nats, "EVENLANE_ETCD": etcd, "COLUMNS": "120"}


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(40)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    finally:
        _kill(process.pid)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
