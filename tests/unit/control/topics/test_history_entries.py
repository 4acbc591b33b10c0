"""Entries of a topic's history: their changes, and values that anybody may have written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.topics.history import (
    ChangeAuthor,
    author_of,
    author_put,
    changes,
    read_history,
)
from evenlane.quota.topics.topic import accept, complete, parse_spec
from evenlane.ring.coordination.ports import KeyValue

CLUSTER_CONFIG = ClusterConfig()
OLD = b'{"number": %d, "revision": 1, "at": "", "by": null, "via": null, "changes": {}}'
DEEP = b'{"changes": ' + b"[" * 100_000


def accepted(spec, before=None, revision=5):
    return accept(complete(parse_spec(spec), CLUSTER_CONFIG), revision, before)


class TestInvalidValues:
    """Anybody may have written them."""

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"[]",
            b'{"by": 5}',
            b'{"by": "\xff"}',
            b'{"by": "' + b"x" * 5_000 + b'"}',
            b"[" * 4_000,
            b'{"by": "ann", "replaced": "1"}',
        ],
    )
    def test_invalid_author_is_unknown(self, value):
        assert author_of(KeyValue("k", value, 1, 7, 0), 7) is None

    def test_author_counts_only_for_its_own_revision(self):
        found = KeyValue("k", author_put("online", "acme", ChangeAuthor("ann\x1b[2J", "topics set")).value, 1, 7, 0)
        assert "'ann\\x1b[2J'" == author_of(found, 7).by
        assert author_of(found, 8) is None
        assert author_of(None, 7) is None

    def test_unseen_deletion_belongs_to_a_later_delete(self):
        deletes = KeyValue("k", author_put("online", "acme", ChangeAuthor("ann", "topics delete")).value, 1, 7, 0)
        sets = KeyValue("k", author_put("online", "acme", ChangeAuthor("ann", "topics set")).value, 1, 7, 0)
        assert "ann" == author_of(deletes, 0, 6).by
        assert author_of(deletes, 0, 7) is None
        assert author_of(sets, 0, 6) is None

    @pytest.mark.parametrize("value", [b"", b"{}", b'{"number": 1}', b"\xff", b'{"at": "\xff"}', b"null", DEEP])
    def test_corrupted_entry_is_named_and_hides_no_other(self, value):
        """F12."""
        corrupted = KeyValue("/evenlane/online/history/acme/3", value, 1, 7, 0)
        good = KeyValue("/evenlane/online/history/acme/2", OLD % 2, 1, 6, 0)
        found = read_history("online", "acme", [good, corrupted])
        assert ([2], [corrupted.key]) == ([entry.number for entry in found.entries], found.unreadable)

    def test_invalid_key_is_named(self):
        unroutable = KeyValue("/evenlane/online/history/acme/x", OLD % 2, 1, 7, 0)
        assert ([], [unroutable.key]) == read_history("online", "acme", [unroutable])


@given(st.sampled_from([1, 100, 250]), st.sampled_from([1, 100, 250]), st.booleans(), st.booleans())
def test_changes_are_the_fields_that_differ(before_qps, after_qps, ordered, deleted):
    before = accepted(b'{"qps": %d}' % before_qps)
    after = replace(
        accepted(b'{"qps": %d, "ordered": %s}' % (after_qps, str(ordered).lower().encode())), deleted=deleted
    )
    found = changes(before, after)
    assert (before_qps != after_qps) == ("qps" in found)
    assert ordered == ("ordered" in found)
    assert deleted == ("deleted" in found)
    assert all(was != now for was, now in found.values())
    assert {} == changes(before, before)


def test_large_values_are_shortened_in_entries():
    headers = ",".join(f'"A-{n}": "{"x" * 4_000}"' for n in range(15))
    large = b'{"qps": 100, "push": {"url": "http://a", "headers": {%s}}}' % headers.encode()
    found = changes(accepted(b'{"qps": 100}'), accepted(large))
    assert (None, "60,") == (found["push"][0], found["push"][1][:3])
    small = changes(accepted(large), accepted(b'{"qps": 100, "push": {"url": "http://b"}}'))
    assert "http://b" == small["push"][1]["url"]


def test_revision_and_drained_groups_are_no_change():
    before = accepted(b'{"qps": 250}')
    after = accepted(b'{"qps": 250}', before, revision=9)
    assert {} == changes(before, after)
    assert {} == changes(before, replace(after, draining=()))
