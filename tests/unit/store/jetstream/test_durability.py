"""What may lose acknowledged messages, in a sentence each."""

import pytest

from evenlane.engine.store.jetstream.durability import ServerSync, Storage, Unknown, find_risks, is_local

THREE = {"LANES_online_0": 3, "SETTLED_online": 3}
ONE = {"LANES_online_0": 1, "SETTLED_online": 1}


def test_nothing_is_at_risk_with_three_replicas_and_servers_that_sync():
    """L: the advice for production."""
    storage = Storage("file", THREE, 3, is_local=False)
    assert [] == find_risks(storage, [ServerSync(f"n{number}", always=True, interval_s=120) for number in range(3)])


def test_server_that_does_not_sync_is_named_with_its_interval():
    """L: nats-server syncs every 2 minutes by default."""
    storage = Storage("file", THREE, 3, is_local=False)
    found = [ServerSync("n1", always=True, interval_s=120), ServerSync("n2", always=False, interval_s=120)]
    [risk] = find_risks(storage, found)
    assert risk.startswith("the NATS server n2 syncs to its disk every 2m: a power cut loses")


@pytest.mark.parametrize(("local", "risks"), [(True, 0), (False, 1)])
def test_servers_that_nobody_asks_are_a_risk_except_on_this_machine(local, risks):
    """L: without `nats_monitor`."""
    assert (
        find_risks(Storage("file", THREE, 3, is_local=local), [])
        == ["whether the NATS servers sync isn't known: set nats_monitor"] * risks
    )


def test_monitoring_address_that_does_not_tell_is_named_with_the_cause():
    storage = Storage("file", THREE, 3, is_local=False)
    [risk] = find_risks(storage, [Unknown("http://n1:8222", "no answer within 2 s")])
    assert risk == "whether the NATS server at http://n1:8222 syncs isn't known: no answer within 2 s (nats_monitor)"


@pytest.mark.parametrize(("local", "risks"), [(True, 0), (False, 1)])
def test_one_replica_is_a_risk_except_on_this_machine(local, risks):
    """P11: production needs three; a trial on this machine doesn't."""
    found = find_risks(Storage("file", ONE, 1, is_local=local), [ServerSync("n1", always=True, interval_s=120)])
    assert [risk for risk in found if "replicas 1" in risk] == found
    assert len(found) == risks


def test_streams_with_fewer_replicas_than_set_are_counted_with_the_command_that_mends_it():
    """P11: the setting is for new streams, so it changes nothing for those that exist."""
    [risk] = find_risks(Storage("file", THREE | ONE, 3, is_local=True), [])
    assert risk.startswith("2 streams have fewer than 3 replicas, for example LANES_online_0: run `evenlane streams")
    [risk] = find_risks(Storage("file", {"B": 3, "A": 1}, 3, is_local=True), [])
    assert risk.startswith("1 stream has fewer than 3 replicas, for example A:")


def test_memory_is_the_only_risk_that_counts():
    """P11."""
    found = find_risks(Storage("memory", ONE, 1, is_local=False), [ServerSync("n", always=False, interval_s=1)])
    assert found == ["the streams are in memory (storage): their messages end with their servers"]


@pytest.mark.parametrize(
    ("servers", "local"),
    [
        (["nats://127.0.0.1:4222", "tls://localhost:4222"], True),
        (["nats://user:secret@[::1]:4222"], True),
        (["nats://127.0.0.1:4222", "nats://nats.example:4222"], False),
        (["nats://127.example:4222"], False),
    ],
)
def test_servers_are_local_if_all_addresses_are(servers, local):
    assert is_local(servers) == local
