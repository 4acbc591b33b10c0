"""Topics as data (design, section 5): what is taken, what is refused and with which words."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenlane.quota.rates.backoff import Backoff
from evenlane.quota.topics.fields import FIELDS
from evenlane.quota.topics.topic import (
    Accepted,
    Topic,
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
from tests.support.topic_cases import BAD, FLAGS, LARGE_NUMBERS, LIMITS, NUMBERS, OPTIONAL, PlainLimits

ALL_DEFAULTS = {
    "qps": 100.0, "groups": 2, "burst": 1, "borrow": True, "weight": 100.0, "reserve": 0.0,
    "concurrency": None, "spread": 12, "max_attempts": 5,
    "backoff": {"base": 1.0, "factor": 2.0, "cap": 600.0, "jitter": 0.1}, "ttl": 259_200.0,
    "dead_letter_expired": False, "ack_wait": 5.0, "max_backlog": None, "ordered": False, "ageing": None,
    "state": "active", "push": None,
}  # fmt: skip
ALL_GIVEN = {
    "qps": 0.5, "groups": 3, "burst": 7, "borrow": False, "weight": 2.0, "reserve": 1.5, "concurrency": 4,
    "spread": 128, "max_attempts": 1, "backoff": {"base": 0.5, "factor": 1.0, "cap": 0.5, "jitter": 0.0},
    "ttl": 1.0, "dead_letter_expired": True,
    "ack_wait": 60.0, "max_backlog": 10, "ordered": True, "ageing": 0.0625, "state": "paused",
    "push": {
        "url": "http://127.0.0.1/", "timeout": 2.5, "secret_ref": "acme", "headers": {"A": "b"}, "concurrency": 3,
    },
}  # fmt: skip

PUSHES = [{"url": "http://a"}, {"url": "https://b/c?d", "timeout": 3}, {"url": "http://a", "headers": {"A": "b"}}]


def topic_of(fields, limits=LIMITS):
    return complete(parse_spec(json.dumps(fields).encode()), limits)


def refused(raw):
    with pytest.raises(TopicError) as caught:
        parse_spec(raw)
    return caught.value


class TestWish:
    @pytest.mark.parametrize(("number", "shown"), LARGE_NUMBERS)
    def test_a_number_is_shown_as_it_was_written_however_large(self, number, shown):
        """F12: none of JSON's own is infinite."""
        assert f"must be a number from 0.01 to 1,000,000, {shown}" == refused(b'{"qps": %s}' % number.encode()).reason

    def test_a_byte_order_mark_is_named(self):
        """F12: in a sentence of our own."""
        sentence = "is not JSON: it begins with a byte order mark (BOM): save it as UTF-8 without one"
        assert sentence == refused(b'\xef\xbb\xbf{"qps": 5}').reason

    @pytest.mark.parametrize(("raw", "field", "reason"), BAD, ids=[f"{n}" for n in range(len(BAD))])
    def test_a_bad_one_is_refused_with_field_and_reason(self, raw, field, reason):
        """Fault row 19."""
        error = refused(raw)
        assert field == error.field
        assert reason in error.reason
        assert str(error).isprintable()
        assert len(str(error)) < 400

    @pytest.mark.parametrize("field", OPTIONAL)
    def test_null_is_none_where_there_may_be_none(self, field):
        assert getattr(topic_of({"qps": 5, field: None}), field) is None

    @pytest.mark.parametrize("field", sorted(set(FIELDS) - set(OPTIONAL)))
    def test_null_is_refused_elsewhere(self, field):
        assert refused(json.dumps({"qps": 5, field: None}).encode()).field == field

    @pytest.mark.parametrize(("raw", "qps"), [(b"0.01", 0.01), (b"1e6", 1e6), (b"5", 5.0), (b"5.0E0", 5.0)])
    def test_numbers_may_be_written_as_json_allows(self, raw, qps):
        assert qps == complete(parse_spec(b' { "qps" : %s }\n' % raw), LIMITS).qps

    def test_a_whole_number_may_have_a_point(self):
        assert topic_of({"qps": 5, "groups": 3.0}).groups == 3
        assert type(topic_of({"qps": 5, "groups": 3.0}).groups) is int

    def test_64_kib_are_taken(self):
        raw = b'{"qps": 5' + b" " * (65_536 - 10) + b"}"
        assert len(raw) == 65_536
        parse_spec(raw)
        assert refused(raw + b" ").field == ""

    @given(st.binary(max_size=200))
    def test_no_bytes_do_more_than_be_refused(self, raw):
        _parse_or_refuse(raw)

    json_values = st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )

    @given(st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(), json_values))
    def test_no_json_does_more_than_be_refused(self, fields):
        spec = _parse_or_refuse(json.dumps(fields).encode())
        if spec is not None:
            assert set(fields) == set(spec.given)

    scalars = st.none() | st.booleans() | st.floats() | st.integers(-1, 10) | st.text(max_size=5)

    @given(st.fixed_dictionaries({"qps": st.floats(1, 9)}, optional=dict.fromkeys((*NUMBERS[1:], *FLAGS), scalars)))
    def test_what_is_taken_is_finite_and_of_the_right_type(self, fields):
        spec = _parse_or_refuse(json.dumps(fields).encode())
        for field, value in {} if spec is None else spec.given.items():
            if field in NUMBERS and value is not None:
                assert type(value) is float
                assert math.isfinite(value)
            if field in FLAGS:
                assert type(value) is bool


def _parse_or_refuse(raw):
    try:
        return parse_spec(raw)
    except TopicError:
        return None


class TestComplete:
    def test_defaults(self):
        assert json.loads(encode(topic_of({"qps": 100}))) == ALL_DEFAULTS

    def test_all_that_is_given_stays(self):
        assert json.loads(encode(topic_of(ALL_GIVEN))) == ALL_GIVEN

    @pytest.mark.parametrize(
        ("qps", "groups"),
        [(0.01, 1), (50, 1), (50.1, 2), (100, 2), (101, 3), (1_000, 20), (1_000_000, 20_000)],
    )
    def test_groups_by_default_have_about_group_qps(self, qps, groups):
        """E3."""
        assert groups == topic_of({"qps": qps}).groups

    @pytest.mark.parametrize(("partitions", "spread"), [(1, 1), (9, 1), (10, 1), (20, 2), (128, 12), (1_000, 100)])
    def test_spread_is_a_tenth_of_the_partitions(self, partitions, spread):
        """P13."""
        assert spread == topic_of({"qps": 5}, PlainLimits(partitions=partitions)).spread

    @pytest.mark.parametrize("groups", [7, 8, 20_000])
    def test_groups_may_be_named(self, groups):
        assert groups == topic_of({"qps": 1_000, "groups": groups}).groups

    def test_too_few_groups_are_refused(self):
        """E3: a group is never above the physical limit of one queue."""
        with pytest.raises(TopicError) as caught:
            topic_of({"qps": 1_000, "groups": 6})
        assert str(caught.value) == (
            "groups must be at least 7 for 1,000 QPS, as one group may have 150 at the most, not 6"
        )

    def test_more_spread_than_partitions_is_refused(self):
        with pytest.raises(TopicError, match="spread must be at most 128, the number of partitions, not 129"):
            topic_of({"qps": 5, "spread": 129})

    def test_more_groups_than_there_may_be_are_refused(self):
        with pytest.raises(TopicError, match="qps must be less than 1,000,000"):
            topic_of({"qps": 1_000_000}, PlainLimits(group_qps=1.0))

    def test_part_of_a_backoff_leaves_the_rest(self):
        assert topic_of({"qps": 5, "backoff": {"cap": 30}}).backoff == Backoff(cap=30.0)

    @given(qps=st.floats(0.01, 1_000_000), most=st.floats(50, 1_000), share=st.floats(0.5, 1.0))
    def test_a_group_is_never_above_the_most(self, qps, most, share):
        """E3, whatever the rounding."""
        limits = PlainLimits(group_qps=max(50.0, most * share), max_group_qps=most)
        topic = topic_of({"qps": qps}, limits)
        assert topic.qps / topic.groups <= most
        with pytest.raises(TopicError):
            topic_of({"qps": qps, "groups": math.ceil(qps / most) - 1}, limits)


ORDERED = {"qps": 100, "ordered": True}


class TestOrdered:
    """Order: which group a key belongs to changes only where nothing waits."""

    def accepted(self, **fields):
        return accept(topic_of({**ORDERED, **fields}), 1, None)

    def after(self, before, **fields):
        return complete(parse_spec(json.dumps({**ORDERED, **fields}).encode()), LIMITS, before)

    def test_groups_and_spread_stay_when_the_rate_changes(self):
        before = self.accepted(spread=3)
        topic = self.after(before, qps=290)
        assert (2, 3, 290) == (topic.groups, topic.spread, topic.qps)
        assert 2 == self.after(before, qps=1).groups

    @pytest.mark.parametrize(("field", "value"), [("groups", 3), ("spread", 5), ("qps", 301)])
    def test_a_change_that_would_move_keys_is_refused(self, field, value):
        with pytest.raises(TopicError) as caught:
            self.after(self.accepted(), **{field: value})
        assert field == caught.value.field
        assert "drain" in caught.value.reason

    def test_neither_may_it_while_the_topic_drains(self):
        with pytest.raises(TopicError):
            self.after(self.accepted(), state="draining", groups=3)
        assert 2 == self.after(self.accepted(state="draining"), state="draining", qps=300).groups

    @pytest.mark.parametrize("state", ["active", "paused"])
    def test_it_moves_as_the_topic_comes_back_from_draining(self, state):
        topic = self.after(self.accepted(state="draining"), state=state, qps=500, spread=4)
        assert (10, 4) == (topic.groups, topic.spread)

    def test_what_is_not_ordered_or_will_not_be_is_free(self):
        assert 3 == self.after(self.accepted(ordered=False), groups=3).groups
        assert 3 == self.after(self.accepted(), ordered=False, groups=3).groups


class TestAccepted:
    def test_is_the_topic_and_five_more_fields(self):
        accepted = Accepted(topic=topic_of({"qps": 100}), active=2, draining=(2, 3), revision=17, number=4)
        added = {"active": 2, "draining": [2, 3], "revision": 17, "number": 4, "deleted": False}
        assert json.loads(encode(accepted)) == {**ALL_DEFAULTS, **added}
        assert [*FIELDS, *added] == list(json.loads(encode(accepted)))

    @pytest.mark.parametrize("fields", [ALL_GIVEN, {"qps": 1}, {"qps": 1e6, "borrow": False}])
    def test_decode_reads_what_encode_wrote(self, fields):
        accepted = accept(topic_of(fields), 5, None)
        assert accepted == decode_accepted(encode(accepted))

    def test_a_newer_release_may_have_written_more(self):
        accepted = accept(topic_of({"qps": 1}), 5, None)
        more = {**json.loads(encode(accepted)), "colour": "blue"}
        assert accepted == decode_accepted(json.dumps(more).encode())

    @pytest.mark.parametrize("field", [*FIELDS, "active", "draining", "revision", "number", "deleted"])
    def test_every_field_is_needed_and_checked(self, field):
        good = json.loads(encode(accept(topic_of({"qps": 1}), 5, None)))
        lacking = {k: v for k, v in good.items() if k != field}
        if field in ("dead_letter_expired", "number", "deleted"):  # which an older leader doesn't write yet
            assert decode_accepted(json.dumps(lacking).encode()) == decode_accepted(json.dumps(good).encode())
            lacking = {**good, field: "1"}
        for bad in (lacking, {**good, field: math.nan}):
            with pytest.raises(TopicError) as caught:
                decode_accepted(json.dumps(bad).encode())
            assert field == caught.value.field

    @pytest.mark.parametrize("raw", [raw for raw, _, _ in BAD[:18]])
    def test_what_is_no_object_is_refused(self, raw):
        with pytest.raises(TopicError):
            decode_accepted(raw)

    def test_a_removed_group_drains_and_comes_back(self):
        """A raised quota never reshuffles keys: groups are only added."""
        before = None
        seen = []
        for revision, groups in enumerate([2, 5, 3, 1, 4], start=1):
            before = accept(topic_of({"qps": 5, "groups": groups}), revision, before)
            seen.append((before.active, before.draining, before.revision))
        assert seen == [(2, (), 1), (5, (), 2), (3, (3, 4), 3), (1, (1, 2, 3, 4), 4), (4, (4,), 5)]

    @given(st.lists(st.integers(1, 40), min_size=1))
    def test_no_group_ever_used_is_forgotten(self, steps):
        before, used = None, set()
        for revision, groups in enumerate(steps, start=1):
            before = accept(topic_of({"qps": 5, "groups": groups}), revision, before)
            used |= set(range(groups))
            assert used == {*range(before.active), *before.draining}
            assert all(group >= before.active for group in before.draining)

    def test_number_counts_changes_and_the_same_wish_again_is_none(self):
        first = accept(topic_of({"qps": 5}), 1, None)
        again = accept(topic_of({"qps": 5}), 2, first)
        other = accept(topic_of({"qps": 6}), 3, again)
        gone = delete(other)
        assert [0, 0, 1, 2, 3] == [
            each.number for each in (first, again, other, gone, accept(other.topic, 4, gone))
        ]  # fmt: skip

    @pytest.mark.parametrize(("state", "after"), [("active", "paused"), ("paused", "paused"), ("draining", "draining")])
    def test_a_deleted_topic_is_paused_unless_it_drains(self, state, after):
        before = accept(topic_of({"qps": 100, "state": state}), 7, None)
        gone = delete(before)
        assert (after, True, False, 7) == (gone.topic.state, gone.deleted, gone.takes_puts, gone.revision)
        assert replace(gone, deleted=False, number=0, topic=before.topic) == before

    @given(st.integers(1, 5), st.integers(0, 4), st.booleans(), st.sets(st.integers(0, 10)))
    def test_only_empty_groups_are_forgotten(self, active, draining, deleted, empty):
        """K6: `empty` may name groups that take puts, or none at all."""
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
    def test_the_first_time(self):
        assert merge(None, {"burst": 5, "qps": 10}) == b'{"qps":10.0,"burst":5}'

    def test_qps_is_needed_the_first_time(self):
        with pytest.raises(TopicError, match="qps is missing"):
            merge(None, {"burst": 5})

    def test_changes_only_what_is_named(self):
        old = b'{"burst": 5, "qps": 10, "ageing": 0.5, "state": "paused"}'
        assert merge(old, {"qps": 20}) == b'{"qps":20.0,"burst":5,"ageing":0.5,"state":"paused"}'

    def test_none_is_the_default_again(self):
        assert merge(b'{"qps": 10, "concurrency": 5}', {"concurrency": None}) == b'{"qps":10.0}'

    def test_parts_of_the_backoff(self):
        old = b'{"qps": 10, "backoff": {"base": 2, "cap": 50}}'
        backoff = json.loads(merge(old, {"backoff": {"cap": 60}}))["backoff"]
        assert backoff == {"base": 2.0, "factor": 2.0, "cap": 60.0, "jitter": 0.1}

    def test_a_wrong_change_is_refused(self):
        for changes, field in (
            ({"qps": -1}, "qps"),
            ({"qsp": 1}, "qsp"),
            ({"backoff": {"cp": 1}}, "backoff.cp"),
        ):
            with pytest.raises(TopicError) as caught:
                merge(b'{"qps": 10, "backoff": {}}', changes)
            assert field == caught.value.field

    def test_a_wrong_field_of_the_present_wish_can_be_mended(self):
        assert merge(b'{"qps": -1}', {"qps": 10}) == b'{"qps":10.0}'
        with pytest.raises(TopicError, match="burst must be a whole number"):
            merge(b'{"qps": 10, "burst": true}', {"qps": 10})

    @pytest.mark.parametrize("old", [b"", b"[]", b'{"qps": 1, "qps": 2}'])
    def test_a_present_wish_that_is_no_object_is_refused(self, old):
        with pytest.raises(TopicError):
            merge(old, {"qps": 10})

    def test_the_whole_must_not_get_too_large(self):
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
    def test_equals_a_wish_written_in_one_go(self, old, changes):
        backoff = {**old.get("backoff", {}), **changes.get("backoff", {})}
        whole = {**old, **changes, **({"backoff": backoff} if backoff else {})}
        merged = merge(json.dumps(old).encode(), changes)
        assert topic_of(whole) == complete(parse_spec(merged), LIMITS)
        assert merged == merge(merged, {})


def test_a_topic_is_frozen():
    topic = topic_of({"qps": 5})
    assert isinstance(topic, Topic)
    with pytest.raises(AttributeError):
        topic.qps = 6
