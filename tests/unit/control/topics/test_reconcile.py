"""What the leader makes of wishes: the last good one of each batch is in force; what is empty may go."""

from hypothesis import given
from hypothesis import strategies as st

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
def test_what_is_in_force_is_the_last_good_wish_of_each_batch(batches_of_steps):
    """X4: whatever was written, wherever the leader had to list again, and however much came at once."""
    acceptance = TopicReconciler("online", ClusterConfig(), {})
    stored, published, expected, revision = {}, {}, {}, 0
    for steps in batches_of_steps:
        reported, touched = [], set()
        for project, raw, lists in steps:
            revision += 1
            item = _stored(project, raw or b"", revision)
            stored.pop(project, None) if raw is None else stored.update({project: item})
            event = Event("delete" if raw is None else "put", item)
            reported.append(Listing(revision, tuple(stored.values())) if lists else event)
            touched.add(project)
        for project in touched:
            spec_now = stored.get(project)
            if spec_now is None and project in expected:
                expected[project] = (expected[project][0], "paused", True)
            elif spec_now is not None and spec_now.value in _GOOD:
                expected[project] = (_GOOD[spec_now.value], "active", False)
        changes = acceptance.changes(reported)
        assert len({change.project for change in changes}) == len(changes)
        for change in changes:
            assert change.before == published.get(change.project)
            published[change.project] = change.after
        assert acceptance.changes([Listing(revision, tuple(stored.values()))]) == []
    assert published == acceptance.accepted
    assert expected == {p: (now.topic.qps, now.topic.state, now.deleted) for p, now in published.items()}
    assert {project for project, item in stored.items() if item.value in _BAD} == set(acceptance.alarms)


def test_nothing_is_looked_up_for_a_name_that_is_none():
    """Fault 19: it will never be accepted, and may be as long as etcd lets it be."""
    acceptance = TopicReconciler("online", ClusterConfig(), {})
    puts = [_stored(name, b'{"qps": 5}', 1) for name in ("a", "b", "a" * 800_000, "", "a/b", "*")]
    assert {"a", "b"} == acceptance.unaccepted([Listing(1, tuple(puts))])
    assert {"b"} == acceptance.unaccepted([Event("delete", puts[0]), *(Event("put", each) for each in puts[1:])])


class TestEmptied:
    def acceptance(self, *topic_client):
        made = TopicReconciler("online", ClusterConfig(), {})
        for revision, raw in enumerate(topic_client, start=1):
            kind = "delete" if raw is None else "put"
            made.changes([Event(kind, _stored("a", raw or b"", revision))])
        return made

    def test_groups_that_drained_are_forgotten_and_others_are_not(self):
        """K6."""
        acceptance = self.acceptance(b'{"qps": 250}', b'{"qps": 100}')
        assert (2, (2, 3, 4)) == (acceptance.accepted["a"].active, acceptance.accepted["a"].draining)
        change = acceptance.remove_groups("a", [0, 1, 2, 4])
        assert (2, (3,)) == (change.after.active, change.after.draining)
        assert acceptance.accepted["a"] is change.after
        assert acceptance.remove_groups("a", [2, 4]) is None

    def test_a_deleted_topic_goes_when_all_its_groups_are_empty_and_not_before(self):
        acceptance = self.acceptance(b'{"qps": 150}', b'{"qps": 100}', None)
        assert acceptance.remove_groups("a", [0, 1]) is None
        assert (2,) == acceptance.accepted["a"].draining
        assert () == acceptance.remove_groups("a", [0, 2]).after.draining
        assert acceptance.remove_groups("a", [0]) is None
        assert None is acceptance.remove_groups("a", [0, 1]).after
        assert {} == acceptance.accepted
        assert acceptance.remove_groups("a", [0, 1]) is None

    def test_a_topic_that_was_not_deleted_stays(self):
        acceptance = self.acceptance(b'{"qps": 100, "state": "draining"}')
        assert acceptance.remove_groups("a", [0, 1]) is None
        assert "a" in acceptance.accepted

    def test_a_wish_refused_for_what_waited_takes_the_place_of_the_topic_that_goes(self):
        """Its groups had to stay as long as messages of the ordered topic waited."""
        acceptance = self.acceptance(b'{"qps": 100, "ordered": true}', None, b'{"qps": 1000, "ordered": true}')
        assert {"a"} == set(acceptance.alarms)
        change = acceptance.remove_groups("a", [0, 1])
        assert (20, (), False, 2, 3, 0) == (
            change.after.active, change.after.draining, change.after.deleted, change.after.number,
            change.revision, change.replaced,
        )  # fmt: skip
        assert ({"a": change.after}, {}) == (acceptance.accepted, acceptance.alarms)
        assert acceptance.remove_groups("a", [0, 1]) is None

    def test_a_wish_that_is_bad_by_itself_stays_refused_and_is_counted_once(self):
        acceptance = self.acceptance(b'{"qps": 100}', None, b'{"qps": -1}')
        assert None is acceptance.remove_groups("a", [0, 1]).after
        assert (1, {"a"}, {}) == (acceptance.refused, set(acceptance.alarms), acceptance.accepted)

    def test_what_was_looked_at_before_another_change_counts_no_more(self):
        acceptance = self.acceptance(b'{"qps": 150}', b'{"qps": 100}', b'{"qps": 150}', b'{"qps": 50}')
        assert acceptance.remove_groups("a", [2], number=1) is None
        assert (1,) == acceptance.remove_groups("a", [2], number=3).after.draining
