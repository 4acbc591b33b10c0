"""What `evenlane scaling` shows (P10, X6)."""

from evenlane.engine.admin.scaling.view import view
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster.cluster_snapshot import ClusterSnapshot
from evenlane.engine.control.scaling.record import ScalingRecord
from evenlane.ring.membership.records import LoadRecord, NodeRecord

NOW = 1_800_000_000.0
LOAD = LoadRecord(used=60.0, wanted=200.0, handling=0.1, blocked={"quota": 12_000, "paused": 3})
NEED = Settings(scaling_policy="need", scaling_target="p99 wait 2s")


def node(**fields):
    return NodeRecord(**{"host": "h", "cpu": 0.5, "cores": 2.0, "projects": 9, "slots": 64, "load": LOAD, **fields})


def cluster(leader="a", **nodes):
    return ClusterSnapshot("online", ("high",), 128, nodes, {}, leader)


def test_decision_is_made_now_by_the_settings():
    """P10, X6: and messages that no node would help are named."""
    seen = cluster(a=node(scaling="leader"), b=node(scaling="leader"))
    document = view(NEED, seen, None, NOW)
    assert ("need", "p99 wait 2s", 2, 7) == tuple(
        document[name] for name in ("policy", "target", "replicas", "desired")
    )
    assert "400.0 of 128 slots would be used within the quotas, and p99 wait 2s needs 7 nodes" == document["why"]
    assert "messages wait for what no node can give: 24,000 for quota, 6 for paused" == document["blocked"]
    assert [] == document["notes"]
    assert (2, None) == (view(Settings(), seen, None, NOW)["desired"], view(Settings(), seen, None, NOW)["recorded"])


def test_rest_of_the_leader_counts():
    """P10."""
    record = ScalingRecord(mode="leader", by="a", at=NOW, desired=2, replicas=1, changed_at=NOW - 60)
    document = view(Settings(), cluster(a=node(cpu=0.99, scaling="leader"), b=node(scaling="leader")), record, NOW)
    assert (2, 2) == (document["replicas"], document["desired"])
    assert document["why"].endswith("; it rests for another 9m")
    assert ("leader", "a", 2, "2027-01-15T07:59:00.000Z") == tuple(
        document["recorded"][name] for name in ("mode", "by", "desired", "changed_at")
    )


def notes(record=None, leader="a", **modes):
    return view(Settings(), cluster(leader, **{name: node(scaling=mode) for name, mode in modes.items()}), record, NOW)[
        "notes"
    ]


def test_notes_say_what_keeps_it_from_being_carried_out():
    """P10: nobody, two at once, a leader that doesn't, and a failed look."""
    assert ["no node has the setting scaling: nothing changes the number of nodes"] == notes(a="off", b="off")
    assert [
        "the setting scaling is hpa on b and keda on a: nothing is scaled until it is the same on all nodes"
    ] == notes(a="keda", b="hpa")
    assert ["node a leads and has scaling = off: as long as it leads, nothing is scaled"] == notes(a="off", b="keda")
    record = ScalingRecord(mode="leader", by="a", at=NOW, error="it is forbidden")
    assert ["the last look of node a has failed: it is forbidden"] == notes(record, a="leader")
    assert [] == notes(a="leader", b="off")


def test_absurd_record_of_a_node_is_named_and_doesnt_count():
    """P10."""
    good = {"a": node(scaling="leader"), "b": node(scaling="leader")}
    document = view(NEED, cluster(**good, c=node(slots=-7, scaling="leader")), None, NOW)
    assert view(NEED, cluster(**good), None, NOW)["why"] == document["why"]
    assert ["node c doesn't count for scaling: slots isn't from 0 to 100000"] == document["notes"]


def test_nodes_that_leave_are_shown_and_dont_count():
    """P10."""
    document = view(Settings(), cluster(a=node(), b=node(cpu=0.99, leaving=True)), None, NOW)
    assert [False, True] == [each["leaving"] for each in document["nodes"]]
    assert "1 node is outside the bounds, 2 to 100" == document["why"]


def test_environment_without_nodes_has_a_view():
    """P10: it doesn't look switched off, unless the leader has recorded that."""
    document = view(NEED, cluster(None), None, NOW)
    assert (1, 2, []) == (document["replicas"], document["desired"], document["nodes"])
    off = ScalingRecord(mode="leader", by="a", at=NOW, why="0 nodes are asked for")
    document = view(NEED, cluster(None), off, NOW)
    assert (0, 0) == (document["replicas"], document["desired"])
