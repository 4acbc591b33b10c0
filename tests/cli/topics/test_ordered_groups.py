"""Keys of an ordered topic get other groups only when nothing of it waits: `evenlane topics` on real servers."""

import pytest

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_env")]

SENTENCE = "topic acme is ordered and 1 of its messages still wait or are being handled"


def test_as_it_comes_back_from_draining(servers, evenlane, monkeypatch, tmp_path):
    """Order: `topics set` and `topics apply` refuse it while a message waits, and do it when none does."""
    for name, value in {"NATS": servers.nats.url, "ETCD": servers.etcd.endpoint, "PARTITIONS": "4"}.items():
        monkeypatch.setenv(f"EVENLANE_{name}", value)
    (tmp_path / "t.toml").write_text("[acme]\nqps = 1000\nordered = true\n[other]\nqps = 1\n")
    assert 0 == evenlane("topics", "set", "acme", "--qps", "100", "--ordered")[0]
    assert 0 == evenlane("put", "acme", "hello", "--key", "k")[0]
    assert 0 == evenlane("topics", "drain", "acme")[0]
    for command in (["set", "acme", "--qps", "1000", "--state", "active"], ["apply", "t.toml"]):
        code, _, err = evenlane("topics", *command)
        assert (1, True) == (code, SENTENCE in err), err
    assert 0 == evenlane("topics", "get", "other")[0]
    assert 0 == evenlane("backlog", "purge", "acme", "--yes")[0]
    code, _, err = evenlane("topics", "apply", "t.toml")
    assert (0, "") == (code, err)
    assert ["acme", "1000", "20"] == evenlane("topics", "list")[1].splitlines()[1].split()[:3]
