import os
import subprocess
import sys

import pytest
import typer

from evenlane.engine import errors
from evenlane.engine.cli.main import run, run_reported
from evenlane.engine.cli.options import CommonOptions, common, instant, seconds
from evenlane.engine.cli.output import new_app


def failing(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.ConfigError, 2),
        (errors.InvalidName, 2),
        (errors.InvalidTopic, 2),
        (errors.PayloadTooLarge, 2),
        (errors.UnknownProject, 1),
        (errors.BacklogFull, 1),
        (errors.NotAcknowledged, 1),
        (errors.Unreachable, 1),
        (errors.Fenced, 1),
        (errors.EvenlaneError, 1),
    ],
)
def test_error_is_one_sentence_with_exit_code_by_kind(kind, code, capsys):
    assert code == run_reported(failing(kind("the disk\n is full")), debug=False)
    assert ("", "evenlane: the disk is full\n") == capsys.readouterr()


def test_unexpected_error_names_the_debug_option(capsys):
    assert 1 == run_reported(failing(RuntimeError("boom\nbang")), debug=False)
    expected = "evenlane: unexpected RuntimeError: boom bang; this is a defect, --debug shows the traceback\n"
    assert ("", expected) == capsys.readouterr()


def test_debug_prints_traceback_before_the_sentence(capsys):
    assert 1 == run_reported(failing(KeyError("k")), debug=True)
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback (most recent call last):" in lines[0]
    assert lines[-1].startswith("evenlane: unexpected KeyError: 'k'")


def test_debug_is_an_option_anywhere_but_after_double_dash(capsys):
    for arguments in (["--debug", "config", "--env", "_"], ["config", "--env", "_", "--debug"]):
        assert 2 == run(arguments)
        assert "Traceback" in capsys.readouterr().err
    assert 2 == run(["config", "--env", "_", "--", "--debug"])
    assert "Traceback" not in capsys.readouterr().err


def test_expected_error_of_an_exception_group_is_reported(capsys):
    group = ExceptionGroup("g", [ValueError("follows"), ExceptionGroup("h", [errors.Unreachable("no NATS at a:1")])])
    assert 1 == run_reported(failing(group), debug=False)
    assert "evenlane: no NATS at a:1\n" == capsys.readouterr().err


def test_os_error_is_not_called_a_defect(capsys):
    assert 1 == run_reported(failing(FileNotFoundError(2, "No such file or directory", "x.jsonl")), debug=False)
    err = capsys.readouterr().err
    assert err.startswith("evenlane: [Errno 2] No such file or directory: 'x.jsonl';")
    assert "defect" not in err


WRONG = r"""
confg
config --zzz
config x
config --nats
"""


def test_wrong_use_is_one_sentence(transcript):
    transcript.fail(WRONG)
    transcript.check()


def test_ctrl_c_ends_with_130_and_a_message(capsys):
    assert 130 == run_reported(failing(KeyboardInterrupt()), debug=False)
    assert ("", "evenlane: interrupted\n") == capsys.readouterr()


def test_exit_code_of_command_is_kept(capsys):
    app = new_app("x")

    @app.command()
    def some_refused() -> None:
        raise typer.Exit(1)

    assert 1 == run_reported(lambda: app([], standalone_mode=False), debug=False)
    assert ("", "") == capsys.readouterr()


def test_invalid_duration_or_instant_names_its_option(capsys):
    app = new_app("x")

    @app.command()
    def put(
        delay: float = typer.Option(0, parser=seconds, metavar="DURATION"),
        due: int = typer.Option(0, parser=instant, metavar="RFC3339"),
    ) -> None:
        typer.echo(f"{delay} {due}")

    def ran(*arguments: str) -> int:
        return run_reported(lambda: app(arguments, standalone_mode=False, prog_name="put"), debug=False)

    assert 0 == ran("--delay", "500ms", "--due", "1970-01-01T00:00:01Z")
    assert "0.5 1000000000\n" == capsys.readouterr().out
    assert 2 == ran("--delay", "soon")
    assert "evenlane: Invalid value for '--delay': 'soon' is not a duration: " in capsys.readouterr().err
    assert 2 == ran("--due", "soon")
    assert "evenlane: Invalid value for '--due': 'soon' is not an RFC 3339 time: " in capsys.readouterr().err


def test_command_gets_common_and_own_options():
    seen = []
    app = new_app("x")

    @app.command()
    @common
    def put(given: CommonOptions, project: str, *, body: str = "none") -> None:
        seen.append((given, project, body, given.load(concurrency="3").settings.concurrency))

    app(["acme", "--env", "sandbox", "--body", "b", "--etcd", "e:1"], standalone_mode=False)
    assert [(CommonOptions(env="sandbox", etcd="e:1"), "acme", "b", 3)] == seen


MANY_LINES = """
from evenlane.engine.cli import main
from evenlane.engine.cli.inspect import config
config.print_json = lambda _document: print("x\\n" * 1_000_000)
main.main()
"""


def test_closed_stdout_is_no_error():
    environ = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MANY_LINES, "config", "--json"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"x\n" == process.stdout.readline()
        process.stdout.close()
        assert b"" == process.stderr.read()
    assert 0 == process.returncode
