"""Whether etcd has gone back, by the revisions that a watch tells (F2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.ring.coordination.memory.server import MemoryStore
from evenlane.ring.coordination.ports import Delete, Event, KeyValue, Listing, Put
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


def test_keys_that_are_no_utf8_may_look_alike():
    """F4: by whomever they were put, they show nothing."""
    alike = [("\ufffd", 2, 3), ("a", 4, 4), ("\ufffd", 5, 6)]
    made = KeyRevisions()
    assert [False, False, False] == [made.take(listing(10, *order)) for order in (alike, alike[::-1], alike)]


@pytest.fixture
def revisions():
    """Of a watch that has told: `a` changed, `b` made, `c` deleted, `d` made anew."""
    made = KeyRevisions()
    for update in (
        listing(10, ("a", 2, 5), ("c", 3, 3), ("d", 4, 4)), put("a", 2, 20), put("b", 30, 30), deleted("c", 40),
        deleted("d", 45), put("d", 50, 50),
    ):  # fmt: skip
        assert not made.take(update)
    return made


class TestGoneBack:
    """Of a restored backup from revision 10, with the store's revision overtaken unless said otherwise."""

    def test_the_revision_of_the_store_is_lower(self, revisions):
        assert revisions.take(listing(49))

    def test_a_key_has_an_older_put(self, revisions):
        assert revisions.take(listing(1_000, ("a", 2, 5)))

    def test_a_key_is_back_that_was_deleted(self, revisions):
        assert revisions.take(listing(1_000, ("a", 2, 20), ("b", 30, 30), ("c", 3, 3), ("d", 50, 50)))

    def test_a_key_was_put_again_that_was_made_anew(self, revisions):
        """Its last put is new, but it was never deleted."""
        assert revisions.take(listing(1_000, ("a", 2, 20), ("d", 4, 900)))

    def test_a_key_was_put_since_the_restore_at_a_revision_that_was_told_of(self, revisions):
        assert revisions.take(listing(1_000, ("a", 2, 25)))
        assert not revisions.take(listing(1_000, ("a", 2, 25))), "it is told once"

    def test_a_key_was_made_since_the_restore_at_a_revision_that_was_told_of(self, revisions):
        assert revisions.take(listing(1_000, ("new", 25, 900)))

    def test_it_is_seen_again_when_it_happens_again(self, revisions):
        assert revisions.take(listing(10, ("a", 2, 5)))
        assert not revisions.take(put("a", 2, 12))
        assert revisions.take(listing(10, ("a", 2, 5)))


class TestNotGoneBack:
    def test_nothing_is_known_at_first(self):
        assert not KeyRevisions().take(listing(10, ("a", 2, 5)))

    def test_what_changed_while_nobody_watched(self, revisions):
        """Changed, deleted, as it was, made."""
        assert not revisions.take(listing(60, ("a", 2, 51), ("d", 50, 50), ("e", 52, 55)))

    def test_all_is_deleted(self, revisions):
        assert not revisions.take(listing(50))
        assert not revisions.take(listing(60))

    def test_a_transaction_of_which_half_was_told(self, revisions):
        assert not revisions.take(listing(50, ("a", 2, 20), ("b", 30, 30), ("c", 50, 50), ("d", 50, 50)))


class TestUnnoticed:
    """What the docstring says."""

    def test_nothing_else_that_the_backup_has_was_changed(self, revisions):
        """A backup from before `d` was made anew."""
        assert not revisions.take(listing(1_000, ("a", 2, 20), ("b", 30, 30)))

    def test_all_that_was_changed_was_put_again(self, revisions):
        assert not revisions.take(listing(1_000, ("a", 2, 900), ("c", 901, 901)))


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sets(st.sampled_from("abc"), min_size=1)),
        st.tuples(st.just("delete"), st.sets(st.sampled_from("abc"), min_size=1)),
        st.tuples(st.just("tell"), st.integers(1, 4)),
        st.tuples(st.just("other"), st.none()),
        st.tuples(st.just("list"), st.none()),
    ),
    max_size=30,
)


@given(ACTIONS)
def test_an_etcd_that_goes_forward_is_never_suspected(actions):
    """However a watch is broken off, in the middle of a transaction, too."""
    store, revisions = MemoryStore(), KeyRevisions()
    assert not revisions.take(store.list(PREFIX))
    not_reported = iter(())
    for what, argument in actions:
        if what == "tell":
            for _, event in zip(range(argument), not_reported, strict=False):  # (the other way round it would skip one)
                assert not revisions.take(event)
        elif what == "list":
            assert not revisions.take(store.list(PREFIX))
            not_reported = iter(())
        else:
            before = store.revision
            keys = [PREFIX + key for key in sorted(argument)] if argument else ["/other"]
            store.txn([], [Delete(key) if what == "delete" else Put(key, b"") for key in keys], [])
            not_reported = iter([*not_reported, *store.events_after(before, PREFIX)])
