"""Commands that entry points name: found when they are wanted, and none of them spoils the others (surface)."""

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


def test_what_is_found_is_what_importlib_finds(install):
    """The standard library's reader is the oracle: of this environment, and of a file with all there can be."""
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


def test_one_of_two_is_the_first_on_the_path(install):
    install("[evenlane.commands]\nreport = greeting:hello\n")
    assert "greeting:hello" == found()["report"]


def test_a_function_and_a_group_are_commands(install, evenlane):
    install("[evenlane.commands]\nhello = greeting:hello\nmore = greeting:more\n")
    assert (0, "hello you\n", "") == evenlane("hello")
    assert (0, "hello me\n", "") == evenlane("hello", "--name", "me")
    assert (0, "hello all\n", "") == evenlane("more", "all")


def test_help_lists_them_before_the_benchmarks(install, evenlane):
    install("[evenlane.commands]\nhello = greeting:hello\n")
    code, out, _ = evenlane("--help")
    names = [line.split()[0] for line in out.partition("Commands:\n")[2].splitlines() if line[2:3].strip()]
    assert 0 == code
    assert names.index("bench") - 1 == max(names.index("hello"), names.index("report"))
    assert [*root().commands] == names


def test_a_command_of_the_engine_is_not_replaced(install, evenlane):
    install("[evenlane.commands]\nconfig = greeting:hello\n")
    assert "hello" not in evenlane("config", "--json")[1]
    assert root().commands["config"].help.startswith("Show the settings in effect")


@pytest.mark.parametrize("value", ["greeting:nothing", "no_such_module:hello"])
def test_one_that_cant_be_loaded_says_so_and_spoils_no_other(install, evenlane, value):
    install(f"[evenlane.commands]\nhello = {value}\n")
    code, out, err = evenlane("hello", "--name", "me")
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert f"the command hello can't be loaded from {value}: " in err
    code, out, _ = evenlane("--help")
    assert 0 == code
    assert "Can't be loaded: run `evenlane hello` to see why." in out


def test_an_unknown_command_is_wrong_use(evenlane):
    code, out, err = evenlane("reports", "--out", "there")
    assert (2, "") == (code, out)
    assert "No such command 'reports'" in err


def loaded_by(*arguments):
    """Which of these modules a command line imports."""
    code = (
        f"import sys; from evenlane.engine.cli.main import run; run({list(arguments)!r});"
        " print(*({'pyspark', 'pyarrow', 'asyncio', 'importlib.metadata', 'evenlane.spark.command'} & {*sys.modules}))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return set(shown.splitlines()[-1].split())


def test_help_stays_quick():
    """Listing imports the command, but neither PySpark nor what reads entry points in the standard library."""
    assert {"evenlane.spark.command"} == loaded_by("--help")
    assert {"evenlane.spark.command"} == loaded_by("report", "--help") - {"importlib.metadata"}
    assert set() == loaded_by("put", "--help") - {"importlib.metadata"}
