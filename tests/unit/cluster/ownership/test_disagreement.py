"""Ownership disagreement: a node's log and troubles while etcd differs from it about owners."""

from structlog.testing import capture_logs

from evenlane.engine.base.troubles import Troubles
from evenlane.engine.cluster.ownership.disagreement import OwnershipDisagreement


def made():
    troubles = Troubles()
    return troubles, OwnershipDisagreement(troubles)


def test_difference_is_logged_once_and_shown_until_it_ends():
    """F3: `/readyz` is 503 meanwhile."""
    troubles, ownership = made()
    with capture_logs() as logs:
        ownership.note_difference("etcd has none of 2 owner keys of this node")
        ownership.note_difference("etcd knows nothing of its lease")
    assert [("etcd has forgotten what it knew of owners", "etcd has none of 2 owner keys of this node")] == [
        (line["event"], line["reason"]) for line in logs
    ]
    assert "it disagrees with etcd about what it owns, and rejoins: etcd knows nothing of its lease" == (
        troubles.not_ready
    )
    ownership.end()
    assert troubles.not_ready
    ownership.note_agreement()
    assert {} == troubles.current()
    with capture_logs() as logs:
        ownership.note_difference("again")
    assert 1 == len(logs)


def test_lost_owner_found_after_agreement_is_no_second_warning():
    """F3: one warning per restore, also for partitions that arrive after the node agrees with etcd again."""
    troubles, ownership = made()
    with capture_logs() as logs:
        ownership.note_difference("etcd is at revision 28")
        ownership.note_agreement()
        ownership.on_rolled_back_owner("lanes 3 had an owner of epoch 34")
        assert troubles.not_ready
        ownership.note_agreement()
        ownership.note_difference("another restore")
    assert ["etcd is at revision 28", "another restore"] == [line["reason"] for line in logs]


def test_lost_owners_found_by_a_new_node_are_logged_once():
    troubles, ownership = made()
    with capture_logs() as logs:
        ownership.on_rolled_back_owner("lanes 3 had an owner of epoch 34")
        ownership.on_rolled_back_owner("lanes 4 had an owner of epoch 35")
    assert 1 == len(logs)
    assert troubles.not_ready


def test_waiting_partitions_are_counted():
    troubles, ownership = made()
    ownership.note_waiting(0, 7)
    ownership.note_waiting(1, 7)
    assert "2 partitions" in troubles.current()["ownership"]
    ownership.note_wait_end(0)
    assert "a partition" in troubles.current()["ownership"]
    ownership.note_wait_end(2)
    ownership.note_agreement()
    assert troubles.not_ready, "partition 1 still waits"
    ownership.note_wait_end(1)
    assert {} == troubles.current()


def test_end_of_the_session_ends_waiting():
    troubles, ownership = made()
    ownership.note_waiting(0, 7)
    ownership.end()
    assert {} == troubles.current()
