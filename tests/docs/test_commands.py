"""Commands in the pages work as pasted: console blocks are carried out, other commands are parsed."""

import re
import shlex
from functools import cache

import pytest
import typer

from evenlane.engine.cli.main import app
from tests.docs.terminal import ROOT, Step, Terminal, normalised, shows, steps, warm_process

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_LONG = ("reports.md", "device-platform.md")
LESSONS = [
    pytest.param(
        page,
        marks=[pytest.mark.full] if page.parent.name == "how-to" or page.name in _LONG else [],
        id=str(page.relative_to(ROOT)),
    )
    for page in PAGES
    if "```console" in page.read_text(encoding="utf-8")
]
_BRINGS_SERVERS = ("evenlane up", "python -m examples.iot up")
_SERVERS = Step(
    "evenlane up --nats-port 4222 --etcd-port 2379", ["ready nats=nats://127.0.0.1:4222 etcd=127.0.0.1:2379"]
)
_CODE = re.compile(r"^```(\w*)(?: .*)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_COMMAND = re.compile(r"(?:^|[|;(]\s*|&& )(?:\$ )?(?:\.venv/bin/)?evenlane\s+([^|;&<>)]*)")


@pytest.fixture(scope="module")
def warm_socket(tmp_path_factory):
    with warm_process(tmp_path_factory.mktemp("warm")) as path:
        yield path


@pytest.mark.real
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", LESSONS)
def test_lesson_works_as_pasted(page, warm_socket, tmp_path):
    found = steps(page.read_text(encoding="utf-8"))
    if not any(step.command.startswith(_BRINGS_SERVERS) for step in found):
        found.insert(0, _SERVERS)
    with Terminal(tmp_path, warm_socket) as terminal:
        for step in found:
            terminal.do(step)


def _commands(text):
    """Yield the arguments of `evenlane` in blocks of code, up to a pipe or the next command."""
    for language, block in _CODE.findall(text):
        for line in [] if language == "text" else block.replace("\\\n", " ").splitlines():
            plain = _QUOTED.sub(lambda quoted: quoted[0].replace("|", " "), line)
            yield from (command.partition(" #")[0].strip() for command in _COMMAND.findall(plain))


@cache
def _root():
    return typer.main.get_command(app)


def _parse(words):
    """Raises Typer's error for a command, option or value that doesn't exist."""
    command, context = _root(), None
    while True:
        context = command.make_context(words[0], list(words[1:]), parent=context)
        if not hasattr(command, "commands") or not (rest := [*context._protected_args, *context.args]):
            return
        name, command, words = command.resolve_command(context, rest)
        words = [name, *words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_page_can_be_parsed(page):
    for command in _commands(page.read_text(encoding="utf-8")):
        if "..." not in command:
            _parse(["evenlane", *shlex.split(re.sub(r"\$\w+|\$\([^)]*\)?", "1", command))])


def test_lines_that_differ_in_numbers_are_equal():
    assert normalised("gone in 2m 2s: 3,663 wait") == normalised("gone in 45s: 7 wait")
    assert normalised("paused (20)") != normalised("quota (20)")


def test_missing_line_is_found():
    assert shows("a 1\nb\nc 2\n", ["a 5", "...", "c 9"], in_order=True)
    assert not shows("c 2\na 1\n", ["a 5", "c 9"], in_order=True)
    assert not shows("a 1\n", ["a 5", "c 9"], in_order=False)
