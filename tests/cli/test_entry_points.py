"""Commands from entry points: they are found and loaded on demand, and a broken one doesn't affect the others."""

import subprocess
import sys
from importlib import metadata

import pytest

from evenlane.engine.cli.entry_points import GROUP, found
from evenlane.engine.cli.main import root

HELLO = """
import typer

def hello(name: str = "you") -> None:
    \"\"\"Greet.\"\"\"
    print(f"hello {name}")

more = typer.Typer(help="Greet more.")

@more.command()
def all() -> None:
    print("hello all")

@more.command()
def none() -> None:
    print("hello none")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a distribution with these entry points, first on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "greeting.py").write_text(HELLO)

    def installed(text, name="greeting"):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(text)

    yield installed
    sys.modules.pop("greeting", None)


def test_entry_points_equal_those_of_importlib(install):
    """The standard library is the oracle, on this environment and on a file with every kind of line."""
    install(
        "# ours\n[console_scripts]\nhello = greeting:main\n\n[evenlane.commands]\nhello=greeting:hello\n# no\n"
        "  more = greeting:more [extra]\n[other]\nreport = greeting:hello\n"
    )
    install("[console_scripts]\nother = greeting:main\n", name="other")
    expected = {}
    for each in metadata.entry_points(group=GROUP):
        expected.setdefault(each.name, f"{each.module}:{each.attr}")
    assert expected == found()
    assert {"hello", "more", "report"} <= expected.keys()


def test_first_distribution_on_the_path_wins(install):
    install("[evenlane.commands]\nreport = greeting:hello\n")
    assert "greeting:hello" == found()["report"]


def test_function_and_group_become_commands(install, evenlane):
    install("[evenlane.commands]\nhello = greeting:hello\nmore = greeting:more\n")
    assert (0, "hello you\n", "") == evenlane("hello")
    assert (0, "hello me\n", "") == evenlane("hello", "--name", "me")
    assert (0, "hello all\n", "") == evenlane("more", "all")


def test_help_lists_extra_commands_before_bench(install, evenlane):
    install("[evenlane.commands]\nhello = greeting:hello\n")
    code, out, _ = evenlane("--help")
    names = [line.split()[0] for line in out.partition("Commands:\n")[2].splitlines() if line[2:3].strip()]
    assert 0 == code
    assert names.index("bench") - 1 == max(names.index("hello"), names.index("report"))
    assert [*root().commands] == names


def test_built_in_command_is_not_replaced(install, evenlane):
    install("[evenlane.commands]\nconfig = greeting:hello\n")
    assert "hello" not in evenlane("config", "--json")[1]
    assert root().commands["config"].help.startswith("Show the settings in effect")


@pytest.mark.parametrize("value", ["greeting:nothing", "no_such_module:hello"])
def test_command_that_cannot_be_loaded_says_why(install, evenlane, value):
    install(f"[evenlane.commands]\nhello = {value}\n")
    code, out, err = evenlane("hello", "--name", "me")
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert f"the command hello can't be loaded from {value}: " in err
    code, out, _ = evenlane("--help")
    assert 0 == code
    assert "Can't be loaded: run `evenlane hello` to see why." in out


def test_unknown_command_is_wrong_use(evenlane):
    code, out, err = evenlane("reports", "--out", "there")
    assert (2, "") == (code, out)
    assert "No such command 'reports'" in err


REPORT = "evenlane.spark.command"
HEAVY = {"pyspark", "pyarrow", "asyncio", "nats", "grpc", "etcd3", "rich", "structlog", "textual"}
PROGRAM = """
import sys
from evenlane.engine.cli import main

def report():
    print(*sorted({names!r} & {{*sys.modules}}), file=sys.stderr)

report()
for command in {commands!r}:
    main.run(command)
    report()
"""


def loaded(names, *commands):
    """The modules among these that are loaded after the import of the command line, and after each command."""
    program = PROGRAM.format(names=names, commands=[command.split() for command in commands])
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return ended.stderr.splitlines()


def test_command_loads_no_other_and_nothing_heavy():
    """The list of commands loads each command, but not the standard library's reader of entry points."""
    put, config = "evenlane.engine.cli.put.command", "evenlane.engine.cli.inspect.config"
    seen = loaded({*HEAVY, REPORT, put, config}, "config --env e", "put --help", "--help")
    assert ["", config, f"{config} {put}", f"{config} {put} {REPORT}"] == seen
    assert ["", REPORT] == loaded({*HEAVY, REPORT, "pydantic", "importlib.metadata"}, "--help")
    assert ["", "", REPORT] == loaded({*HEAVY, REPORT}, "top --help", "report --help")
