"""Accepted topics, and changes merged into a spec."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenlane.quota.topics.fields import FIELDS
from evenlane.quota.topics.topic import (
    Accepted,
    NewerTopic,
    TopicError,
    accept,
    complete,
    decode_accepted,
    delete,
    encode,
    merge,
    parse_spec,
    without,
)
from tests.support.topic_cases import BAD, LIMITS
from tests.unit.quota.topics.specs import ALL_DEFAULTS, ALL_GIVEN, PUSHES, topic_of


class TestAccepted:
    def test_accepted_has_the_topic_and_six_more_fields(self):
        accepted = Accepted(topic=topic_of({"qps": 100}), active=2, draining=(2, 3), revision=17, number=4)
        added = {"active": 2, "draining": [2, 3], "revision": 17, "number": 4, "deleted": False, "format": 1}
        assert json.loads(encode(accepted)) == {**ALL_DEFAULTS, **added}
        assert [*ALL_DEFAULTS, *added] == list(json.loads(encode(accepted)))

    @pytest.mark.parametrize("fields", [ALL_GIVEN, {"qps": 1}, {"qps": 1e6, "borrow": False}])
    def test_accepted_topic_survives_encoding(self, fields):
        accepted = accept(topic_of(fields), 5, None)
        assert accepted == decode_accepted(encode(accepted))

    def test_unknown_field_is_ignored(self):
        """Rolling upgrade: a newer release may write more fields."""
        accepted = accept(topic_of({"qps": 1}), 5, None)
        more = {**json.loads(encode(accepted)), "colour": "blue"}
        assert accepted == decode_accepted(json.dumps(more).encode())

    @pytest.mark.parametrize("changed", [{}, {"active": "a later form"}, {"qps": None}])
    def test_newer_format_is_named(self, changed):
        """U2: whatever else is in it; a release before the field wrote format 1."""
        written = json.loads(encode(accept(topic_of({"qps": 1}), 5, None)))
        with pytest.raises(NewerTopic, match=r"^format is 2, and this release reads only 1: upgrade this process$"):
            decode_accepted(json.dumps({**written, "format": 2, **changed}).encode())
        del written["format"]
        assert accept(topic_of({"qps": 1}), 5, None) == decode_accepted(json.dumps(written).encode())

    @pytest.mark.parametrize("field", [*FIELDS, "active", "draining", "revision", "number", "deleted"])
    def test_each_field_is_required_and_checked(self, field):
        good = json.loads(encode(accept(topic_of({"qps": 1}), 5, None)))
        lacking = {k: v for k, v in good.items() if k != field}
        if field in ("dead_letter_expired", "subscriptions", "number", "deleted"):  # not always written
            assert decode_accepted(json.dumps(lacking).encode()) == decode_accepted(json.dumps(good).encode())
            lacking = {**good, field: "1"}
        for bad in (lacking, {**good, field: math.nan}):
            with pytest.raises(TopicError) as caught:
                decode_accepted(json.dumps(bad).encode())
            assert field == caught.value.field

    @pytest.mark.parametrize("raw", [raw for raw, _, _ in BAD[:18]])
    def test_accepted_must_be_a_json_object(self, raw):
        with pytest.raises(TopicError):
            decode_accepted(raw)

    @given(st.lists(st.integers(1, 40), min_size=1))
    def test_removed_groups_drain(self, steps):
        """L, K6: each group that was ever active is active or draining."""
        before, used = None, set()
        for revision, groups in enumerate(steps, start=1):
            before = accept(topic_of({"qps": 5, "groups": groups}), revision, before)
            used |= set(range(groups))
            assert (groups, revision) == (before.active, before.revision)
            assert used == {*range(before.active), *before.draining}
            assert all(group >= before.active for group in before.draining)

    def test_number_counts_changes_only(self):
        """An unchanged spec and the first one don't count."""
        first = accept(topic_of({"qps": 5}), 1, None)
        again = accept(topic_of({"qps": 5}), 2, first)
        other = accept(topic_of({"qps": 6}), 3, again)
        gone = delete(other)
        assert [0, 0, 1, 2, 3] == [
            each.number for each in (first, again, other, gone, accept(other.topic, 4, gone))
        ]  # fmt: skip

    @pytest.mark.parametrize(("state", "after"), [("active", "paused"), ("paused", "paused"), ("draining", "draining")])
    def test_deleted_topic_is_paused_unless_it_drains(self, state, after):
        before = accept(topic_of({"qps": 100, "state": state}), 7, None)
        gone = delete(before)
        assert (after, True, False, 7) == (gone.topic.state, gone.deleted, gone.can_take_puts, gone.revision)
        assert replace(gone, deleted=False, number=0, topic=before.topic) == before

    @given(st.integers(1, 5), st.integers(0, 4), st.booleans(), st.sets(st.integers(0, 10)))
    def test_only_empty_groups_are_removed(self, active, draining, deleted, empty):
        """K6: `empty` may have groups that take puts, and groups that don't exist."""
        topic = topic_of({"qps": 5, "groups": active})
        held = tuple(range(active, active + draining))
        before = Accepted(topic=topic, active=active, draining=held, revision=1, deleted=deleted)
        after = without(before, empty)
        if after is None:
            assert deleted
            assert {*range(active), *held} <= empty
        else:
            assert not (deleted and {*range(active), *held} <= empty)
            assert replace(before, draining=tuple(sorted({*held} - empty))) == after


class TestMerge:
    def test_new_spec_needs_qps(self):
        assert merge(None, {"burst": 5, "qps": 10}) == b'{"qps":10.0,"burst":5}'
        with pytest.raises(TopicError, match="qps is missing"):
            merge(None, {"burst": 5})

    def test_merge_changes_only_the_named_fields(self):
        old = b'{"burst": 5, "qps": 10, "ageing": 0.5, "state": "paused"}'
        assert merge(old, {"qps": 20}) == b'{"qps":20.0,"burst":5,"ageing":0.5,"state":"paused"}'

    def test_none_restores_the_default(self):
        assert merge(b'{"qps": 10, "concurrency": 5}', {"concurrency": None}) == b'{"qps":10.0}'

    def test_backoff_is_merged_by_part(self):
        old = b'{"qps": 10, "backoff": {"base": 2, "cap": 50}}'
        backoff = json.loads(merge(old, {"backoff": {"cap": 60}}))["backoff"]
        assert backoff == {"base": 2.0, "factor": 2.0, "cap": 60.0, "jitter": 0.1}

    def test_invalid_change_is_refused(self):
        for changes, field in (
            ({"qps": -1}, "qps"),
            ({"qsp": 1}, "qsp"),
            ({"backoff": {"cp": 1}}, "backoff.cp"),
        ):
            with pytest.raises(TopicError) as caught:
                merge(b'{"qps": 10, "backoff": {}}', changes)
            assert field == caught.value.field

    def test_invalid_field_of_the_present_spec_can_be_repaired(self):
        assert merge(b'{"qps": -1}', {"qps": 10}) == b'{"qps":10.0}'
        with pytest.raises(TopicError, match="burst must be a whole number"):
            merge(b'{"qps": 10, "burst": true}', {"qps": 10})

    @pytest.mark.parametrize("old", [b"", b"[]", b'{"qps": 1, "qps": 2}'])
    def test_present_spec_must_be_a_json_object(self, old):
        with pytest.raises(TopicError):
            merge(old, {"qps": 10})

    def test_merged_spec_has_at_most_64_kib(self):
        headers = {f"A-{n}": "x" * 4_000 for n in range(20)}
        with pytest.raises(TopicError, match="bytes long"):
            merge(None, {"qps": 10, "push": {"url": "http://a", "headers": headers}})

    good = st.fixed_dictionaries(
        {"qps": st.floats(0.01, 1e6)},
        optional={
            "burst": st.integers(1, 100),
            "ordered": st.booleans(),
            "concurrency": st.none() | st.integers(1, 9),
            "backoff": st.fixed_dictionaries({}, optional={"base": st.floats(0.1, 9), "jitter": st.floats(0, 1)}),
            "push": st.none() | st.sampled_from(PUSHES),
        },
    )

    @given(good, good)
    def test_merge_equals_a_spec_written_at_once(self, old, changes):
        backoff = {**old.get("backoff", {}), **changes.get("backoff", {})}
        whole = {**old, **changes, **({"backoff": backoff} if backoff else {})}
        merged = merge(json.dumps(old).encode(), changes)
        assert topic_of(whole) == complete(parse_spec(merged), LIMITS)
        assert merged == merge(merged, {})
