"""An ordered topic changes its number of groups only without a backlog: `evenlane topics` on real servers."""

import pytest

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_env")]

SENTENCE = "topic acme is ordered and 1 of its messages still wait or are being handled"


def test_groups_of_ordered_topic_change_only_without_a_backlog(servers, evenlane, monkeypatch, tmp_path):
    """Order: after draining, `topics set` and `topics apply` refuse other groups while a message waits."""
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
