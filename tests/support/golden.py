"""Golden files: the expected output of commands, in a text file next to the test.

`tests/cli/topics/test_topics.py::test_pause_resume_and_drain` has its text in
`tests/cli/topics/test_topics/pause_resume_and_drain.txt`. `pytest --update` rewrites the files with the present output;
review their diff like code.
"""

from __future__ import annotations

import getpass
import re
import shlex
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_PORT = re.compile(r"(?<=127\.0\.0\.1:)(?!(?:1|9)\b)\d+")  # 1 and 9 are ports of tests without a listener


def normalised(text: str, words: Mapping[str, str]) -> str:
    """The text without differences between runs: recent times, free ports, user and host. `words` maps the variable
    parts of one test to the words in the file.
    """
    for varying, word in words.items():
        text = text.replace(varying, word)
    text = text.replace(f"{getpass.getuser()}@{socket.gethostname()}", "USER@HOST")
    return _PORT.sub("PORT", _TIME.sub(_if_recent, text))


def _if_recent(match: re.Match[str]) -> str:
    at = datetime.fromisoformat(match[0])
    recent = abs(at - datetime.now(UTC)) < timedelta(days=7)
    return "YYYY-MM-DDTHH:MM:SS.fffffffffZ"[: len(match[0]) - 1] + "Z" if recent else match[0]  # of the same width


def golden_path(test_file: Path, test: str) -> Path:
    return test_file.with_suffix("") / f"{re.sub(r'[^A-Za-z0-9_]+', '-', test.removeprefix('test_')).strip('-')}.txt"


class Golden:
    """The golden file of one test."""

    def __init__(self, path: Path, *, update: bool) -> None:
        self.path = path
        self._update = update

    def check(self, now: str) -> None:
        if self._update:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(now)
        assert self.path.exists(), f"{self.path} is not there: pytest --update writes it"
        assert self.path.read_text() == now


class Transcript:
    """Commands and their output, as in a shell: stderr is marked by `!`, an exit code other than 0 by brackets."""

    def __init__(
        self, run: Callable[..., tuple[int, str, str]], golden: Golden, words: Mapping[str, str] | None = None
    ) -> None:
        self.words = dict(words or {})
        """Variable parts of this test -> the words for them in the file."""
        self._run, self._golden = run, golden
        self._lines: list[str] = []

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Run `evenlane ...`, and return (exit code, stdout, stderr)."""
        code, out, err = self._run(*arguments)
        self._lines += [f"$ evenlane {shlex.join(arguments)}", *out.splitlines()]
        self._lines += [f"! {line}" for line in err.splitlines()]
        self._lines += [f"[{code}]"] if code else []
        self._lines.append("")
        return code, out, err

    def fail(self, commands: str) -> None:
        """Run the commands, one per line. Each must fail with one sentence on stderr and nothing on stdout."""
        for command in commands.strip().splitlines():
            code, out, err = self(*shlex.split(command))
            assert ("", 1) == (out, err.count("\n")), command
            assert code in (1, 2), command

    def check(self) -> None:
        """Compare the transcript with the golden file."""
        self._golden.check(normalised("\n".join(self._lines), self.words))


def golden_of(request: Any) -> Golden:
    """The golden file of the test that requests a fixture."""
    return Golden(golden_path(request.path, request.node.name), update=request.config.getoption("--update"))
