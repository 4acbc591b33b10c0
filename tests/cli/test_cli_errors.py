import os
import subprocess
import sys

import pytest
import typer

from evenlane.engine import errors
from evenlane.engine.cli.main import ended, run
from evenlane.engine.cli.options import Given, common, instant, seconds
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
def test_an_error_is_one_sentence_and_says_by_its_code_whose_fault_it_is(kind, code, capsys):
    assert code == ended(failing(kind("what is\n wrong")), debug=False)
    assert ("", "evenlane: what is wrong\n") == capsys.readouterr()


def test_a_defect_is_one_sentence_too_and_names_the_way_to_its_traceback(capsys):
    assert 1 == ended(failing(RuntimeError("boom\nbang")), debug=False)
    expected = "evenlane: unexpected RuntimeError: boom bang; this is a defect, --debug shows the traceback\n"
    assert ("", expected) == capsys.readouterr()


def test_debug_shows_the_traceback_and_then_the_sentence(capsys):
    assert 1 == ended(failing(KeyError("k")), debug=True)
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback (most recent call last):" in lines[0]
    assert lines[-1].startswith("evenlane: unexpected KeyError: 'k'")


def test_debug_counts_before_and_after_the_command_but_not_as_an_argument(capsys):
    for arguments in (["--debug", "config", "--env", "_"], ["config", "--env", "_", "--debug"]):
        assert 2 == run(arguments)
        assert "Traceback" in capsys.readouterr().err
    assert 2 == run(["config", "--env", "_", "--", "--debug"])
    assert "Traceback" not in capsys.readouterr().err


def test_of_a_task_groups_errors_the_one_raised_on_purpose_is_told(capsys):
    group = ExceptionGroup("g", [ValueError("follows"), ExceptionGroup("h", [errors.Unreachable("no NATS at a:1")])])
    assert 1 == ended(failing(group), debug=False)
    assert "evenlane: no NATS at a:1\n" == capsys.readouterr().err


def test_a_disk_or_file_that_fails_is_not_called_a_defect(capsys):
    assert 1 == ended(failing(FileNotFoundError(2, "No such file or directory", "x.jsonl")), debug=False)
    err = capsys.readouterr().err
    assert err.startswith("evenlane: [Errno 2] No such file or directory: 'x.jsonl';")
    assert "defect" not in err


WRONG = r"""
confg
config --zzz
config x
config --nats
"""


def test_wrong_use_is_one_sentence_and_code_2(transcript):
    transcript.fail(WRONG)
    transcript.check()


def test_ctrl_c_ends_with_130_and_a_word(capsys):
    assert 130 == ended(failing(KeyboardInterrupt()), debug=False)
    assert ("", "evenlane: interrupted\n") == capsys.readouterr()


def test_an_exit_code_that_a_command_chose_is_kept(capsys):
    app = new_app("x")

    @app.command()
    def some_refused() -> None:
        raise typer.Exit(1)

    assert 1 == ended(lambda: app([], standalone_mode=False), debug=False)
    assert ("", "") == capsys.readouterr()


def test_a_wrong_duration_or_instant_names_its_option(capsys):
    app = new_app("x")

    @app.command()
    def put(
        delay: float = typer.Option(0, parser=seconds, metavar="DURATION"),
        due: int = typer.Option(0, parser=instant, metavar="RFC3339"),
    ) -> None:
        typer.echo(f"{delay} {due}")

    def ran(*arguments: str) -> int:
        return ended(lambda: app(arguments, standalone_mode=False, prog_name="put"), debug=False)

    assert 0 == ran("--delay", "500ms", "--due", "1970-01-01T00:00:01Z")
    assert "0.5 1000000000\n" == capsys.readouterr().out
    assert 2 == ran("--delay", "soon")
    assert "evenlane: Invalid value for '--delay': 'soon' is not a duration: " in capsys.readouterr().err
    assert 2 == ran("--due", "soon")
    assert "evenlane: Invalid value for '--due': 'soon' is not an RFC 3339 time: " in capsys.readouterr().err


def test_a_command_gets_the_common_options_beside_its_own():
    seen = []
    app = new_app("x")

    @app.command()
    @common
    def put(given: Given, project: str, *, body: str = "none") -> None:
        seen.append((given, project, body, given.load(concurrency="3").settings.concurrency))

    app(["acme", "--env", "sandbox", "--body", "b", "--etcd", "e:1"], standalone_mode=False)
    assert [(Given(env="sandbox", etcd="e:1"), "acme", "b", 3)] == seen


MANY_LINES = """
from evenlane.engine.cli import main
main.config.print_json = lambda _document: print("x\\n" * 1_000_000)
main.main()
"""


def test_a_reader_that_has_had_enough_is_no_error():
    environ = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MANY_LINES, "config", "--json"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"x\n" == process.stdout.readline()
        process.stdout.close()
        assert b"" == process.stderr.read()
    assert 0 == process.returncode
