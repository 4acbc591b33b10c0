"""Topic specs: accepted values with their defaults, and refusals with their reasons."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.quota.rates.backoff import Backoff
from evenlane.quota.topics.fields import FIELDS
from evenlane.quota.topics.topic import Topic, TopicError, accept, complete, encode, parse_spec
from tests.support.topic_cases import BAD, FLAGS, LARGE_NUMBERS, LIMITS, NUMBERS, OPTIONAL, PlainLimits
from tests.unit.quota.topics.specs import ALL_DEFAULTS, ALL_GIVEN, refused, topic_of


class TestSpec:
    @pytest.mark.parametrize(("number", "shown"), LARGE_NUMBERS)
    def test_large_number_is_shown_as_written(self, number, shown):
        """F12: it isn't shown as infinite."""
        assert f"must be a number from 0.01 to 1,000,000, {shown}" == refused(b'{"qps": %s}' % number.encode()).reason

    def test_byte_order_mark_is_named(self):
        """F12."""
        sentence = "is not JSON: it begins with a byte order mark (BOM): save it as UTF-8 without one"
        assert sentence == refused(b'\xef\xbb\xbf{"qps": 5}').reason

    @pytest.mark.parametrize(("raw", "field", "reason"), BAD, ids=[f"{n}" for n in range(len(BAD))])
    def test_invalid_spec_is_refused_with_field_and_reason(self, raw, field, reason):
        """Fault row 19."""
        error = refused(raw)
        assert field == error.field
        assert reason in error.reason
        assert str(error).isprintable()
        assert len(str(error)) < 400

    @pytest.mark.parametrize("field", OPTIONAL)
    def test_null_clears_an_optional_field(self, field):
        assert getattr(topic_of({"qps": 5, field: None}), field) is None

    @pytest.mark.parametrize("field", sorted(set(FIELDS) - set(OPTIONAL)))
    def test_null_is_refused_in_other_fields(self, field):
        assert refused(json.dumps({"qps": 5, field: None}).encode()).field == field

    @pytest.mark.parametrize(("raw", "qps"), [(b"0.01", 0.01), (b"1e6", 1e6), (b"5", 5.0), (b"5.0E0", 5.0)])
    def test_numbers_have_all_forms_of_json(self, raw, qps):
        assert qps == complete(parse_spec(b' { "qps" : %s }\n' % raw), LIMITS).qps

    def test_whole_number_may_have_a_decimal_point(self):
        assert topic_of({"qps": 5, "groups": 3.0}).groups == 3
        assert type(topic_of({"qps": 5, "groups": 3.0}).groups) is int

    def test_spec_has_at_most_64_kib(self):
        raw = b'{"qps": 5' + b" " * (65_536 - 10) + b"}"
        assert len(raw) == 65_536
        parse_spec(raw)
        assert refused(raw + b" ").field == ""

    json_values = st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )

    @given(st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(), json_values))
    def test_any_json_is_parsed_or_refused(self, fields):
        """Fault 19."""
        spec = _parse_or_refuse(json.dumps(fields).encode())
        if spec is not None:
            assert set(fields) == set(spec.given)

    scalars = st.none() | st.booleans() | st.floats() | st.integers(-1, 10) | st.text(max_size=5)

    @given(st.fixed_dictionaries({"qps": st.floats(1, 9)}, optional=dict.fromkeys((*NUMBERS[1:], *FLAGS), scalars)))
    def test_parsed_values_are_finite_and_of_the_right_type(self, fields):
        """Fault 19."""
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
    def test_missing_fields_have_defaults(self):
        assert json.loads(encode(topic_of({"qps": 100}))) == ALL_DEFAULTS

    def test_given_fields_are_kept(self):
        assert json.loads(encode(topic_of(ALL_GIVEN))) == ALL_GIVEN

    @pytest.mark.parametrize(
        ("qps", "groups"),
        [(0.01, 1), (50, 1), (50.1, 2), (100, 2), (101, 3), (1_000, 20), (1_000_000, 20_000)],
    )
    def test_default_groups_have_at_most_group_qps(self, qps, groups):
        """E3."""
        assert groups == topic_of({"qps": qps}).groups

    @pytest.mark.parametrize(("partitions", "spread"), [(1, 1), (9, 1), (10, 1), (20, 2), (128, 12), (1_000, 100)])
    def test_spread_is_a_tenth_of_the_partitions(self, partitions, spread):
        """P13."""
        assert spread == topic_of({"qps": 5}, PlainLimits(partitions=partitions)).spread

    @pytest.mark.parametrize("groups", [7, 8, 20_000])
    def test_given_number_of_groups_is_kept(self, groups):
        assert groups == topic_of({"qps": 1_000, "groups": groups}).groups

    def test_too_few_groups_are_refused(self):
        """E3: a group never exceeds the limit of one queue."""
        with pytest.raises(TopicError) as caught:
            topic_of({"qps": 1_000, "groups": 6})
        assert str(caught.value) == (
            "groups must be at least 7 for 1,000 QPS, as one group may have at most 150, not 6"
        )

    def test_spread_above_the_number_of_partitions_is_refused(self):
        with pytest.raises(TopicError, match="spread must be at most 128, the number of partitions, not 129"):
            topic_of({"qps": 5, "spread": 129})

    def test_qps_that_needs_too_many_groups_is_refused(self):
        with pytest.raises(TopicError, match="qps must be less than 1,000,000"):
            topic_of({"qps": 1_000_000}, PlainLimits(group_qps=1.0))

    def test_partial_backoff_keeps_the_other_defaults(self):
        assert topic_of({"qps": 5, "backoff": {"cap": 30}}).backoff == Backoff(cap=30.0)

    @given(qps=st.floats(0.01, 1_000_000), most=st.floats(50, 1_000), share=st.floats(0.5, 1.0))
    def test_group_never_exceeds_the_maximum(self, qps, most, share):
        """E3: with any rounding."""
        limits = PlainLimits(group_qps=max(50.0, most * share), max_group_qps=most)
        topic = topic_of({"qps": qps}, limits)
        assert topic.qps / topic.groups <= most
        with pytest.raises(TopicError):
            topic_of({"qps": qps, "groups": math.ceil(qps / most) - 1}, limits)


ORDERED = {"qps": 100, "ordered": True}


class TestOrdered:
    """K6: the group of a key changes only while no message waits."""

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
    def test_change_that_moves_keys_is_refused(self, field, value):
        with pytest.raises(TopicError) as caught:
            self.after(self.accepted(), **{field: value})
        assert field == caught.value.field
        assert "drain" in caught.value.reason

    def test_change_that_moves_keys_is_refused_while_draining(self):
        with pytest.raises(TopicError):
            self.after(self.accepted(), state="draining", groups=3)
        assert 2 == self.after(self.accepted(state="draining"), state="draining", qps=300).groups

    @pytest.mark.parametrize("state", ["active", "paused"])
    def test_groups_may_change_when_draining_ends(self, state):
        topic = self.after(self.accepted(state="draining"), state=state, qps=500, spread=4)
        assert (10, 4) == (topic.groups, topic.spread)

    def test_groups_may_change_without_order(self):
        assert 3 == self.after(self.accepted(ordered=False), groups=3).groups
        assert 3 == self.after(self.accepted(), ordered=False, groups=3).groups


def test_topic_is_frozen():
    topic = topic_of({"qps": 5})
    assert isinstance(topic, Topic)
    with pytest.raises(AttributeError):
        topic.qps = 6
