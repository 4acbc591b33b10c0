"""The leader's view of `accepted/`: it compares revisions, as its watch also reports its own writes, perhaps late."""

import pytest
from msgspec.structs import replace

from evenlane.engine.control.topics.accepted_view import AcceptedView
from evenlane.quota.topics.topic import encode
from evenlane.ring.coordination.ports import Absent, DeleteKey, Event, Listing, ModifiedAt, PutKey
from tests.unit.control.topics.accepted_topics import GOOD, KEY, ROOT, stored


@pytest.fixture
def view():
    return AcceptedView("online", [stored(encode(GOOD), 7)])


def test_writes_are_conditional_on_known_revisions(view):
    put = PutKey(KEY, b"")
    assert {"acme": GOOD} == view.accepted
    assert [ModifiedAt(KEY, 7)] == [*view.build_compares([put, PutKey(ROOT + "history/acme/1", b"")])]
    view.note_written([put], 9)
    assert [ModifiedAt(KEY, 9)] == [*view.build_compares([put])]
    view.note_written([DeleteKey(KEY)], 11)
    assert [Absent(KEY)] == [*view.build_compares([put])]


@pytest.mark.parametrize("revision", [7, 6])
def test_own_and_older_writes_are_no_damage(view, revision):
    view.apply_events([Event("put", stored(b"rubbish", revision)), Event("delete", stored(b"", revision))])
    view.apply_events([Listing(revision, (stored(b"rubbish", revision),)), Listing(revision, ())])
    assert {} == view.corrupted


def test_listing_older_than_own_writes_is_stale(view):
    """An event is not: it may be of another key."""
    view.apply_events([Listing(8, (stored(encode(GOOD), 7),)), Event("delete", stored(b"", 6, KEY + "x"))])
    assert not view.is_stale
    view.note_written([PutKey(KEY, b"")], 9)
    view.apply_events([Listing(8, (stored(encode(GOOD), 7),))])
    assert view.is_stale


def test_key_older_than_own_write_is_stale(view):
    """F2: etcd was restored and has a higher revision again."""
    view.apply_events([Listing(100, (stored(encode(GOOD), 7),))])
    assert not view.is_stale
    view.apply_events([Listing(100, (stored(encode(GOOD), 6),))])
    assert view.is_stale


@pytest.mark.parametrize(
    ("update", "compare"),
    [
        (Event("put", stored(b"rubbish", 9)), ModifiedAt(KEY, 9)),
        (Event("put", stored(b'{"qps": 5}', 9)), ModifiedAt(KEY, 9)),
        (Listing(9, (stored(b"\xff", 9),)), ModifiedAt(KEY, 9)),
        (Event("delete", stored(b"", 9)), Absent(KEY)),
        (Listing(9, ()), Absent(KEY)),
    ],
)
def test_damage_is_overwritten_unless_it_has_changed(view, update, compare):
    view.apply_events([update])
    assert ["acme"] == [*view.corrupted]
    put = PutKey(KEY, encode(GOOD))
    assert [compare] == [*view.build_compares([put])]
    view.note_written([put], 10)
    assert {} == view.corrupted


@pytest.mark.parametrize("name", ["\ufffd", "", "a/b", "x" * 65])
def test_invalid_project_name_is_skipped(name):
    """A key that isn't UTF-8 is reported as another key, so no comparison with it could hold."""
    strange = stored(encode(GOOD), 7, ROOT + "accepted/" + name)
    view = AcceptedView("online", [strange])
    view.apply_events([Event("put", stored(b"rubbish", 9, strange.key)), Event("delete", strange), Listing(9, ())])
    assert ({}, {}, {}) == (view.accepted, view.unreadable, view.corrupted)


def test_valid_foreign_value_fails_the_next_write(view):
    view.apply_events([Event("put", stored(b"rubbish", 8)), Event("put", stored(encode(replace(GOOD, number=5)), 9))])
    assert {} == view.corrupted
    assert [ModifiedAt(KEY, 9)] != [*view.build_compares([PutKey(KEY, b"")])]
