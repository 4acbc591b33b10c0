"""Names on the wire: their rules, and the subjects, streams and keys built from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.errors import InvalidName

CHECKS = {
    "project": names.check_project,
    "environment": names.check_env,
    "priority": names.check_priority_name,
    "node": names.check_node,
    "id": names.check_id,
    "key": names.check_key,
}
GOOD = {
    "project": ["a", "Acme-1_x", "0", "x" * 64],
    "environment": ["online", "sandbox-2", "x" * 64],
    "priority": ["high", "p0-x"],
    "node": ["n1", "host.example-1_x", "x" * 128],
    "id": ["1", "a/b:c|d", "~", "x" * 200],
    "key": ["order 17", "ключ", "a\u00a0b", "x" * 256],
}
BAD = {
    "project": ["", "-a", "_a", "a.b", "a b", "a*", ">", "ä", "a\n", "x" * 65],
    "environment": ["", "a_b", "a.b", "-a", "x" * 65, "a\n"],
    "priority": ["", "a_b", "a.b", "x" * 65],
    "node": ["", ".a", "a/b", "a b", "x" * 129],
    "id": ["", "a b", "ä", "a\tb", "x" * 201, "a\n"],
    "key": ["", "a\nb", "a\x00", "x" * 257, "\x7f"],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, good in GOOD.items() for name in good])
def test_valid_name_is_returned(kind, name):
    assert name == CHECKS[kind](name)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, bad in BAD.items() for name in bad])
def test_invalid_name_is_refused_with_its_kind_and_rule(kind, name):
    with pytest.raises(InvalidName, match=rf"^{kind} .* is not valid: 1 to \d+ "):
        CHECKS[kind](name)


@pytest.mark.parametrize("kind", CHECKS)
@pytest.mark.parametrize("name", [None, 7, b"acme", ["acme"]], ids=repr)
def test_name_must_be_a_text(kind, name):
    with pytest.raises(InvalidName):
        CHECKS[kind](name)


@pytest.mark.parametrize("kind", CHECKS)
def test_refusal_of_a_long_name_is_short(kind):
    with pytest.raises(InvalidName) as caught:
        CHECKS[kind]("x\n" * 100_000)
    assert len(str(caught.value)) < 300


@given(st.text())
def test_valid_name_cannot_break_a_subject_or_a_header(text):
    for kind in ("project", "environment", "priority"):
        try:
            name = CHECKS[kind](text)
        except InvalidName:
            continue
        assert not set(name) & set(".*> \r\n\t")


def test_streams_and_subjects_have_their_documented_form():
    lane, later = LaneId("lanes", 7), LaneId("later", 7)
    assert ["LANES_online_7", "LATER_online_7"] == [names.stream("online", each) for each in (lane, later)]
    assert ["DEAD_online", "SETTLED_online"] == [names.dead_stream("online"), names.settled_stream("online")]
    assert "lanes.online.7.acme.3.high" == names.lane_subject("online", 7, "acme", 3, "high")
    assert "later.online.7.acme.3.high.498000" == names.later_subject("online", 7, "acme", 3, "high", 498_000)
    assert "dead.online.acme" == names.dead_subject("online", "acme")
    assert ["settled.online.lanes.7", "settled.online.later.7"] == [
        names.settled_subject("online", each) for each in (lane, later)
    ]


def test_etcd_keys_of_environments_are_separate():
    """E1."""
    assert "/evenlane/online/partitions/7/owner" == names.key("online", "partitions", 7, "owner")
    assert not names.key("a", "b").startswith(names.key("a-b"))
