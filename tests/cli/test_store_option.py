"""Commands with `memory://`, which other processes can't reach (E15)."""

import pytest

from evenlane.engine.cli.main import run

HANDLER = ["--handler", "examples.handler:handle"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["put", "acme", "x"], ["why", "acme"], ["backlog", "peek", "acme"], ["dlq", "list", "acme"], ["top", "--plain"],
        ["report", "--out", "there"],
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_one_that_needs_the_store_of_others_says_so_at_once(capsys, monkeypatch, arguments):
    monkeypatch.setenv("EVENLANE_STORE", "memory://")
    assert 2 == run(arguments)
    reported = (
        "evenlane: store (variable EVENLANE_STORE): memory:// is in the memory of one process, which this command can't"
        " reach: give it --nats\n"
    )
    assert ("", reported) == capsys.readouterr()


def test_processes_can_not_share_it(capsys):
    assert 2 == run(["run", *HANDLER, "--store", "memory://", "--processes", "2"])
    assert "store (flag --store): memory:// is in the memory of one process" in capsys.readouterr().err


def test_up_starts_its_own(capsys, tmp_path):
    assert 2 == run(["up", "--data-dir", str(tmp_path / "d"), "--store", "nats://127.0.0.1:4222"])
    assert "evenlane: --store names a server that runs already, but `up` starts its own" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()
