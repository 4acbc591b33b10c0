"""E15: commands with `memory://`, which other processes can't reach."""

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
def test_command_that_needs_a_shared_store_refuses_memory(capsys, monkeypatch, arguments):
    monkeypatch.setenv("EVENLANE_STORE", "memory://")
    assert 2 == run(arguments)
    expected = (
        "evenlane: store (variable EVENLANE_STORE): memory:// lives in the memory of one process, which this command"
        " can't reach: use --nats\n"
    )
    assert ("", expected) == capsys.readouterr()


def test_several_processes_cannot_share_memory(capsys):
    assert 2 == run(["run", *HANDLER, "--store", "memory://", "--processes", "2"])
    assert "store (flag --store): memory:// lives in the memory of one process" in capsys.readouterr().err


def test_up_refuses_a_store_of_others(capsys, tmp_path):
    assert 2 == run(["up", "--data-dir", str(tmp_path / "d"), "--store", "nats://127.0.0.1:4222"])
    assert (
        "evenlane: --store names a server that is already running, but `up` starts its own" in capsys.readouterr().err
    )
    assert not (tmp_path / "d").exists()
