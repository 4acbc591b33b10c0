"""Detection of an etcd rollback by the revisions that a watch reports (F2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.ring.coordination.memory.server import MemoryKeyValueStore
from evenlane.ring.coordination.ports import DeleteKey, Event, KeyValue, Listing, PutKey
from evenlane.ring.coordination.revisions import KeyRevisions

PREFIX = "/topics/"


def item(key, created, modified):
    return KeyValue(PREFIX + key, b"", created, modified, 0)


def put(key, created, modified):
    return Event("put", item(key, created, modified))


def deleted(key, revision):
    return Event("delete", KeyValue(PREFIX + key, b"", 0, revision, 0))


def listing(revision, *items):
    return Listing(revision, tuple(item(*each) for each in items))


def test_equal_looking_keys_show_no_rollback():
    """F4: keys that aren't UTF-8 may look alike."""
    alike = [("\ufffd", 2, 3), ("a", 4, 4), ("\ufffd", 5, 6)]
    made = KeyRevisions()
    assert [False, False, False] == [made.observe(listing(10, *order)) for order in (alike, alike[::-1], alike)]


@pytest.fixture
def revisions():
    """The revisions of a watch after these events: `a` changed, `b` created, `c` deleted, `d` created again."""
    made = KeyRevisions()
    for update in (
        listing(10, ("a", 2, 5), ("c", 3, 3), ("d", 4, 4)), put("a", 2, 20), put("b", 30, 30), deleted("c", 40),
        deleted("d", 45), put("d", 50, 50),
    ):  # fmt: skip
        assert not made.observe(update)
    return made


@pytest.mark.parametrize(
    "restored",
    [
        pytest.param(listing(49), id="lower revision of the store"),
        pytest.param(listing(1_000, ("a", 2, 5)), id="older put of a key"),
        pytest.param(listing(1_000, ("a", 2, 20), ("b", 30, 30), ("c", 3, 3), ("d", 50, 50)), id="deleted key is back"),
        pytest.param(listing(1_000, ("a", 2, 20), ("d", 4, 900)), id="earlier creation of a key, put again since"),
        pytest.param(listing(1_000, ("a", 2, 25)), id="put at a revision that is reported already"),
        pytest.param(listing(1_000, ("new", 25, 900)), id="creation at a revision that is reported already"),
    ],
)
def test_restored_backup_is_noticed_once(revisions, restored):
    """F3: a backup from revision 10, in most cases with a store that has passed the known revisions again."""
    assert revisions.observe(restored)
    assert not revisions.observe(restored)


def test_second_restore_is_noticed():
    """F3."""
    revisions = KeyRevisions()
    revisions.observe(listing(50, ("a", 2, 20)))
    assert revisions.observe(listing(10, ("a", 2, 5)))
    assert not revisions.observe(put("a", 2, 12))
    assert revisions.observe(listing(10, ("a", 2, 5)))


@pytest.mark.parametrize(
    "update",
    [
        pytest.param(listing(60, ("a", 2, 51), ("d", 50, 50), ("e", 52, 55)), id="changes while unwatched"),
        pytest.param(listing(50), id="all keys deleted in one transaction"),
        pytest.param(listing(60), id="all keys deleted"),
        pytest.param(
            listing(50, ("a", 2, 20), ("b", 30, 30), ("c", 50, 50), ("d", 50, 50)), id="half-reported transaction"
        ),
    ],
)
def test_etcd_that_goes_forward_shows_no_rollback(revisions, update):
    assert not revisions.observe(update)


@pytest.mark.parametrize(
    "restored",
    [
        pytest.param(listing(1_000, ("a", 2, 20), ("b", 30, 30)), id="no other key of the backup had changed"),
        pytest.param(listing(1_000, ("a", 2, 900), ("c", 901, 901)), id="all changed keys were put again"),
    ],
)
def test_indistinguishable_rollback_goes_unnoticed(revisions, restored):
    """The limits that the docstring of `KeyRevisions` states."""
    assert not revisions.observe(restored)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sets(st.sampled_from("abc"), min_size=1)),
        st.tuples(st.just("delete"), st.sets(st.sampled_from("abc"), min_size=1)),
        st.tuples(st.just("report"), st.integers(1, 4)),
        st.tuples(st.just("other"), st.none()),
        st.tuples(st.just("list"), st.none()),
    ),
    max_size=30,
)


@given(ACTIONS)
def test_interrupted_watch_shows_no_rollback(actions):
    """F2: even if the watch breaks in the middle of a transaction."""
    store, revisions = MemoryKeyValueStore(), KeyRevisions()
    assert not revisions.observe(store.list(PREFIX))
    unreported = iter(())
    for what, argument in actions:
        if what == "report":
            for _, event in zip(range(argument), unreported, strict=False):  # (the other way round it would skip one)
                assert not revisions.observe(event)
        elif what == "list":
            assert not revisions.observe(store.list(PREFIX))
            unreported = iter(())
        else:
            before = store.revision
            keys = [PREFIX + key for key in sorted(argument)] if argument else ["/other"]
            store.txn([], [DeleteKey(key) if what == "delete" else PutKey(key, b"") for key in keys], [])
            unreported = iter([*unreported, *store.events_after(before, PREFIX)])
