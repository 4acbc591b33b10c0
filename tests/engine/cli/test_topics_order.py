"""Keys of an ordered topic get other groups only when nothing of it waits: `evenlane topics` on real servers."""

import asyncio

import pytest

from engine.cli.main import run
from engine.servers import Servers

pytestmark = pytest.mark.real

SENTENCE = "topic acme is ordered and 1 of its messages still wait or are being handled"


@pytest.fixture
def servers(tmp_path):
    both = Servers(tmp_path / "servers", fast=True)
    asyncio.run(both.start())
    yield both
    asyncio.run(both.stop())


def test_as_it_comes_back_from_draining(servers, monkeypatch, tmp_path, capsys):
    """Order: `topics set` and `topics apply` refuse it while a message waits, and do it when none does."""
    for name, value in {"NATS": servers.nats.url, "ETCD": servers.etcd.endpoint, "PARTITIONS": "4"}.items():
        monkeypatch.setenv(f"EVENLANE_{name}", value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.toml").write_text("[acme]\nqps = 1000\nordered = true\n[other]\nqps = 1\n")

    def done(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        return run([*arguments]), capsys.readouterr().err

    assert 0 == done("topics", "set", "acme", "--qps", "100", "--ordered")[0]
    assert 0 == done("put", "acme", "hello", "--key", "k")[0]
    assert 0 == done("topics", "drain", "acme")[0]
    for command in (["set", "acme", "--qps", "1000", "--state", "active"], ["apply", "t.toml"]):
        code, err = done("topics", *command)
        assert (1, True) == (code, SENTENCE in err), err
    assert 0 == done("topics", "get", "other")[0]
    assert 0 == done("backlog", "purge", "acme", "--yes")[0]
    assert (0, "") == done("topics", "apply", "t.toml")
    run(["topics", "list"])
    assert ["acme", "1000", "20"] == capsys.readouterr().out.splitlines()[1].split()[:3]
