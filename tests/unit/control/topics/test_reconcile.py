"""Topic reconciler: the last valid spec of each batch takes effect, and empty groups are removed."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.topics.reconcile import TopicReconciler
from evenlane.ring.coordination.ports import Event, KeyValue, Listing

ROOT = "/evenlane/online/"


def _stored(project, raw, revision):
    return KeyValue(f"{ROOT}topics/{project}", raw, revision, revision, 0)


_GOOD = {b'{"qps": 5}': 5.0, b'{"qps": 100}': 100.0, b'{"qps": 5, "groups": 9}': 5.0}
_BAD = (b"", b'{"qps": -5}')
_SPECS = st.sampled_from([*_GOOD, *_BAD, None])


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), _SPECS, st.booleans()))))
def test_last_valid_spec_of_each_batch_takes_effect(batches_of_steps):
    """X4: for any writes, batches and relistings."""
    reconciler = TopicReconciler("online", ClusterConfig(), {})
    stored, published, expected, revision = {}, {}, {}, 0
    for steps in batches_of_steps:
        updates, touched = [], set()
        for project, raw, lists in steps:
            revision += 1
            item = _stored(project, raw or b"", revision)
            stored.pop(project, None) if raw is None else stored.update({project: item})
            event = Event("delete" if raw is None else "put", item)
            updates.append(Listing(revision, tuple(stored.values())) if lists else event)
            touched.add(project)
        for project in touched:
            spec_now = stored.get(project)
            if spec_now is None and project in expected:
                expected[project] = (expected[project][0], "paused", True)
            elif spec_now is not None and spec_now.value in _GOOD:
                expected[project] = (_GOOD[spec_now.value], "active", False)
        changes = reconciler.changes(updates)
        assert len({change.project for change in changes}) == len(changes)
        for change in changes:
            assert change.before == published.get(change.project)
            published[change.project] = change.after
        assert reconciler.changes([Listing(revision, tuple(stored.values()))]) == []
    assert published == reconciler.accepted
    assert expected == {p: (now.topic.qps, now.topic.state, now.deleted) for p, now in published.items()}
    assert {project for project, item in stored.items() if item.value in _BAD} == set(reconciler.alarms)


def test_invalid_name_is_never_looked_up():
    """Fault 19: its spec is never accepted, and the name may be as long as etcd allows."""
    reconciler = TopicReconciler("online", ClusterConfig(), {})
    puts = [_stored(name, b'{"qps": 5}', 1) for name in ("a", "b", "a" * 800_000, "", "a/b", "*")]
    assert {"a", "b"} == reconciler.find_unaccepted([Listing(1, tuple(puts))])
    assert {"b"} == reconciler.find_unaccepted([Event("delete", puts[0]), *(Event("put", each) for each in puts[1:])])


class TestEmptyGroups:
    def reconciler(self, *specs):
        """Return a reconciler of these specs of a project; None deletes the spec."""
        made = TopicReconciler("online", ClusterConfig(), {})
        for revision, raw in enumerate(specs, start=1):
            kind = "delete" if raw is None else "put"
            made.changes([Event(kind, _stored("a", raw or b"", revision))])
        return made

    def test_only_empty_draining_groups_are_removed(self):
        """K6."""
        reconciler = self.reconciler(b'{"qps": 250}', b'{"qps": 100}')
        assert (2, (2, 3, 4)) == (reconciler.accepted["a"].active, reconciler.accepted["a"].draining)
        change = reconciler.remove_groups("a", [0, 1, 2, 4])
        assert (2, (3,)) == (change.after.active, change.after.draining)
        assert reconciler.accepted["a"] is change.after
        assert reconciler.remove_groups("a", [2, 4]) is None

    def test_deleted_topic_is_removed_with_its_last_group(self):
        reconciler = self.reconciler(b'{"qps": 150}', b'{"qps": 100}', None)
        assert reconciler.remove_groups("a", [0, 1]) is None
        assert (2,) == reconciler.accepted["a"].draining
        assert () == reconciler.remove_groups("a", [0, 2]).after.draining
        assert reconciler.remove_groups("a", [0]) is None
        assert None is reconciler.remove_groups("a", [0, 1]).after
        assert {} == reconciler.accepted
        assert reconciler.remove_groups("a", [0, 1]) is None

    def test_existing_topic_stays_when_empty(self):
        reconciler = self.reconciler(b'{"qps": 100, "state": "draining"}')
        assert reconciler.remove_groups("a", [0, 1]) is None
        assert "a" in reconciler.accepted

    def test_spec_rejected_for_its_backlog_replaces_the_removed_topic(self):
        """The groups of an ordered topic must stay while messages wait."""
        reconciler = self.reconciler(b'{"qps": 100, "ordered": true}', None, b'{"qps": 1000, "ordered": true}')
        assert {"a"} == set(reconciler.alarms)
        change = reconciler.remove_groups("a", [0, 1])
        assert (20, (), False, 2, 3, 0) == (
            change.after.active, change.after.draining, change.after.deleted, change.after.number,
            change.revision, change.replaced,
        )  # fmt: skip
        assert ({"a": change.after}, {}) == (reconciler.accepted, reconciler.alarms)
        assert reconciler.remove_groups("a", [0, 1]) is None

    def test_invalid_spec_stays_rejected_and_counts_once(self):
        reconciler = self.reconciler(b'{"qps": 100}', None, b'{"qps": -1}')
        assert None is reconciler.remove_groups("a", [0, 1]).after
        assert (1, {"a"}, {}) == (reconciler.refused, set(reconciler.alarms), reconciler.accepted)

    def test_findings_under_an_earlier_number_change_nothing(self):
        reconciler = self.reconciler(b'{"qps": 150}', b'{"qps": 100}', b'{"qps": 150}', b'{"qps": 50}')
        assert reconciler.remove_groups("a", [2], number=1) is None
        assert (1,) == reconciler.remove_groups("a", [2], number=3).after.draining


def test_quota_of_a_subscription_returns_after_a_leader_of_an_older_release():
    """U1: that leader writes the accepted topic without the field that it doesn't know; the spec still has it."""
    spec = _stored("a", b'{"qps": 5, "subscriptions": {"audit": {"qps": 2}}}', 7)
    reconciler = TopicReconciler("online", ClusterConfig(), {})
    [change] = reconciler.changes([Listing(7, (spec,))])
    forgotten = replace(change.after, topic=replace(change.after.topic, subscriptions=None))
    later = TopicReconciler("online", ClusterConfig(), {"a": forgotten})
    [restored] = later.changes([Listing(8, (spec,))])
    assert change.after.topic == restored.after.topic
    assert later.changes([Listing(8, (spec,))]) == []


def test_spec_that_only_mentions_subscriptions_is_not_published_again():
    spec = _stored("a", b'{"qps": 5, "subscriptions": {}}', 7)
    reconciler = TopicReconciler("online", ClusterConfig(), {})
    [change] = reconciler.changes([Listing(7, (spec,))])
    assert TopicReconciler("online", ClusterConfig(), {"a": change.after}).changes([Listing(7, (spec,))]) == []
