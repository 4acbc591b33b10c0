"""Templates: strict reading (fault 19), and the choice of one for a project."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.quota.topics.template import Template, best, merge_template, parse_template
from evenlane.quota.topics.topic import TopicError, parse_spec


def template(name: str, match: str, qps: float = 10, limit: int = 1_000) -> Template:
    return Template(name=name, match=match, topic=b'{"qps":%d}' % qps, limit=limit)


class TestRead:
    def test_valid_template_is_read(self):
        read = parse_template("dev", b'{"match": "dev-*", "topic": {"qps": 10, "groups": 1}, "limit": 5}')
        assert ("dev", "dev-*", 5) == (read.name, read.match, read.limit)
        assert {"qps": 10, "groups": 1} == parse_spec(read.topic).given

    def test_limit_defaults_to_1_000(self):
        assert parse_template("dev", b'{"match": "*", "topic": {"qps": 10}}').limit == 1_000

    @pytest.mark.parametrize(
        ("raw", "field", "reason"),
        [
            (b"", "", "is not JSON"),
            (b"[]", "", "must be a JSON object"),
            (b"{}", "match", "is missing"),
            (b'{"match": "dev-*"}', "topic", "must be an object"),
            (b'{"match": "dev-*", "topic": 5}', "topic", "must be an object"),
            (b'{"match": "dev-*", "topic": {}}', "topic.qps", "is missing"),
            (b'{"match": "dev-*", "topic": {"qps": -1}}', "topic.qps", "must be a number from 0.01"),
            (b'{"match": "dev-*", "topic": {"qps": NaN}}', "topic.qps", "must be a number from 0.01"),
            (b'{"match": "dev-*", "topic": {"qps": 1, "colour": null}}', "topic.colour", "is not a field of a topic"),
            (b'{"match": "dev-*", "topic": {"qps": 1, "state": "draining"}}', "topic.state", "can't be draining"),
            (b'{"match": "dev.*", "topic": {"qps": 1}}', "match", "must be 1 to 64 letters"),
            (b'{"match": "", "topic": {"qps": 1}}', "match", "must be 1 to 64 letters"),
            (b'{"match": 5, "topic": {"qps": 1}}', "match", "must be 1 to 64 letters"),
            (b'{"match": "[ab]", "topic": {"qps": 1}}', "match", "must be 1 to 64 letters"),
            (b'{"match": "a", "topic": {"qps": 1}, "limit": 0}', "limit", "must be a whole number from 1"),
            (b'{"match": "a", "topic": {"qps": 1}, "limit": true}', "limit", "must be a whole number from 1"),
            (b'{"match": "a", "match": "b", "topic": {"qps": 1}}', "match", "is given twice"),
            (b'{"match": "a", "topic": {"qps": 1}, "x": 1}', "x", "is not a field of a template"),
        ],
    )
    def test_invalid_template_is_refused_with_field_and_reason(self, raw, field, reason):
        """Fault 19."""
        with pytest.raises(TopicError) as error:
            parse_template("dev", raw)
        assert field == error.value.field
        assert error.value.reason.startswith(reason)

    @given(st.binary(max_size=200) | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
            st.sampled_from(["match", "topic", "limit", "qps", "state"]) | st.text(), inner), max_leaves=10,
    ).map(lambda value: json.dumps(value).encode()))  # fmt: skip
    def test_any_bytes_are_a_template_or_one_error(self, raw):
        """Fault 20."""
        try:
            parse_template("dev", raw)
        except TopicError as error:
            assert "\n" not in str(error)  # noqa: PT017


class TestMatch:
    @pytest.mark.parametrize(
        ("match", "project", "does"),
        [
            ("dev-*", "dev-1", True),
            ("dev-*", "dev-", True),
            ("dev-*", "xdev-1", False),
            ("dev-?", "dev-1", True),
            ("dev-?", "dev-12", False),
            ("*", "anything", True),
            ("acme", "acme", True),
            ("acme", "Acme", False),
        ],
    )
    def test_match_is_a_glob_over_the_project(self, match, project, does):
        assert does is template("t", match).is_match(project)

    def test_most_specific_template_is_chosen(self):
        templates = [template("all", "*"), template("dev", "dev-*"), template("team", "dev-red-*")]
        chosen = {project: best(templates, project) for project in ("x", "dev-1", "dev-red-1")}
        assert {"x": "all", "dev-1": "dev", "dev-red-1": "team"} == {p: each.name for p, each in chosen.items()}

    def test_first_name_wins_between_equally_specific_templates(self):
        assert "a" == best([template("b", "?ev-*"), template("a", "de?-*")], "dev-1").name

    def test_no_matching_template_gives_none(self):
        assert best([template("dev", "dev-*")], "acme") is None


class TestMerged:
    def test_merge_changes_only_the_named_fields(self):
        old = merge_template("dev", None, {"match": "dev-*"}, {"qps": 10, "ttl": 60})
        new = merge_template("dev", old, {"limit": 7}, {"ttl": None, "burst": 3})
        assert {"match": "dev-*", "topic": {"qps": 10.0, "burst": 3}, "limit": 7} == json.loads(new)

    def test_new_template_needs_match_and_qps(self):
        with pytest.raises(TopicError, match=r"topic\.qps is missing"):
            merge_template("dev", None, {"match": "dev-*"}, {})
        with pytest.raises(TopicError, match="match is missing"):
            merge_template("dev", None, {}, {"qps": 10})
