"""What a node says while etcd and it differ about who owns what."""

from structlog.testing import capture_logs

from evenlane.engine.base.troubles import Troubles
from evenlane.engine.cluster.ownership.disagreement import OwnershipDisagreement


def made():
    troubles = Troubles()
    return troubles, OwnershipDisagreement(troubles)


def test_a_difference_is_said_once_in_the_log_and_until_it_is_over():
    """F3: `/readyz` is 503 meanwhile."""
    troubles, ownership = made()
    with capture_logs() as logs:
        ownership.differs("etcd has none of 2 owner keys of this node")
        ownership.differs("etcd knows nothing of its lease")
    assert [("etcd has forgotten what it knew of owners", "etcd has none of 2 owner keys of this node")] == [
        (line["event"], line["reason"]) for line in logs
    ]
    assert "it differs from etcd about what it owns, and joins anew: etcd knows nothing of its lease" == (
        troubles.not_ready
    )
    ownership.left()
    assert troubles.not_ready
    ownership.agrees()
    assert {} == troubles.current()
    with capture_logs() as logs:
        ownership.differs("again")
    assert 1 == len(logs)


def test_a_forgotten_owner_that_a_settle_log_names_later_is_no_second_warning():
    """F3: one warning for each restore, though partitions come to the node after it agrees with etcd again."""
    troubles, ownership = made()
    with capture_logs() as logs:
        ownership.differs("etcd is at revision 28")
        ownership.agrees()
        ownership.on_rolled_back_owner("lanes 3 had an owner of epoch 34")
        assert troubles.not_ready
        ownership.agrees()
        ownership.differs("another restore")
    assert ["etcd is at revision 28", "another restore"] == [line["reason"] for line in logs]


def test_a_node_that_starts_after_a_restore_warns_of_what_a_settle_log_names():
    troubles, ownership = made()
    with capture_logs() as logs:
        ownership.on_rolled_back_owner("lanes 3 had an owner of epoch 34")
        ownership.on_rolled_back_owner("lanes 4 had an owner of epoch 35")
    assert 1 == len(logs)
    assert troubles.not_ready


def test_partitions_that_wait_are_counted():
    troubles, ownership = made()
    ownership.waits(0, 7)
    ownership.waits(1, 7)
    assert "2 partitions" in troubles.current()["ownership"]
    ownership.waits_no_more(0)
    assert "a partition" in troubles.current()["ownership"]
    ownership.waits_no_more(2)
    ownership.agrees()
    assert troubles.not_ready, "one waits still"
    ownership.waits_no_more(1)
    assert {} == troubles.current()


def test_nothing_is_waited_for_after_the_term():
    troubles, ownership = made()
    ownership.waits(0, 7)
    ownership.left()
    assert {} == troubles.current()
