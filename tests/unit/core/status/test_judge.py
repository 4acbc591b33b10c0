"""The status of a project: which one it is, its words, and the order of urgency (X13)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.records.backlog_answer import Rates
from evenlane.engine.core.status.facts import Failure, StatusFacts, Waiting
from evenlane.engine.core.status.judge import judge
from evenlane.engine.core.status.status import NAMES, SEVERITIES
from evenlane.engine.core.wire.reason_codes import REASONS
from tests.unit.core.status.cases import CASES, NOON, facts, mid, rates


@pytest.mark.parametrize(("given_", "name", "severity", "label", "sentence"), CASES)
def test_status(given_, name, severity, label, sentence):
    """X13: the words of each case."""
    status = judge(facts(**given_))[0]
    assert (name, severity, label, sentence) == status[:4]


REMEDIES = [
    ({"rates": rates(failed=1.0)}, ["evenlane dlq list acme --env online", "evenlane topics pause acme --env online"]),
    (
        {"rates": rates(failed=1.0), "subscription": "audit"},
        ["dlq list acme --env online --subscription audit`", "without nodes of 'audit' the rest waits"],
    ),
    ({"state": "paused"}, ["evenlane topics resume acme --env online"]),
    ({"state": "paused", "deleted": True, "waiting": mid(1, 5.0)}, ["topics drain acme", "backlog purge acme"]),
    ({"state": None, "waiting": mid(1, 5.0)}, ["evenlane topics set acme --qps 100 --env online"]),
    ({"state": None, "waiting": mid(1, 5.0), "is_lost": True}, ["evenlane topics apply FILE --env online"]),
    ({"unserved": 1}, ["evenlane plan --env online"]),
    ({"waiting": mid(5, 9.0), "reasons": {"no_handler": 2}}, ["add a handler", "evenlane plan"]),
    ({"rates": rates(expired=1.0), "reasons": {"quota": 1}}, ["--env online --qps N", "--ttl DURATION"]),
    # 60/s, and 7,200 in an hour: 62/s; 3.1 times the quota, and with it the share of the slots
    (
        {
            "waiting": mid(7_200, 90.0), "reasons": {"quota": 4}, "rates": rates(arriving=60.0, handled=20.0),
            "slots": 0.1,
        },
        ["its producer slows down", "a quota of 62/s clears it in 1h", "3.1 x the quota and 31 % of the slots"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given_", "parts"), REMEDIES)
def test_remedy(given_, parts):
    """X13: the sentence says what to do, with commands that can be pasted."""
    remedy = judge(facts(**given_))[0].remedy
    assert all(part in remedy for part in parts), remedy


# cases of which each is more urgent than the next
ORDER = [
    {"unserved": 1},
    {"state": None, "waiting": mid(1, 1.0)},
    {"waiting": mid(5, 9.0), "reasons": {"no_handler": 2}},
    {"waiting": mid(5, 9.0), "reasons": {"paused": 2}},
    {"rates": rates(failed=1.0)},
    {"rates": rates(handled=9.0, failed=1.0)},
    {"rates": rates(handled=9.0, expired=1.0)},
    {"state": "paused", "deleted": True, "waiting": mid(1, 5.0)},
    {"waiting": mid(40, 30.0), "reasons": {"endpoint": 1}},
    {"waiting": mid(40, 9.0), "reasons": {"quota": 1}, "rates": rates(arriving=60.0, handled=20.0)},
    {"waiting": mid(40, 720.0), "reasons": {"handlers_busy": 4}},
    {"waiting": mid(40, 30.0), "reasons": {"fairness": 2}},
    {"state": "paused", "waiting": mid(1_422, 7_200.0)},
    {"state": "draining"},
    {},
]


def test_order_of_urgency():
    """X13: every surface sorts by this order."""
    urgencies = [judge(facts(**each))[0].urgency for each in ORDER]
    assert urgencies == sorted(urgencies)
    assert len(set(urgencies)) == len(urgencies)


def test_several_statuses():
    """X13: a project that fails and offers too much has both; the quota explains why its messages are late."""
    found = judge(facts(
        waiting=mid(9_000, 1_800.0), reasons={"quota": 3}, rates=rates(arriving=60.0, handled=15.0, failed=5.0)
    ))  # fmt: skip
    assert ["failing", "over_quota"] == [status.name for status in found]


_rate = st.floats(0, 1e6).map(lambda rate: round(rate, 3))
_any_rates = st.builds(
    Rates, arriving=_rate, handled=_rate, failed=_rate, seconds=st.just(30.0), dead=_rate, expired=_rate
)
_waiting = st.builds(
    Waiting, st.sampled_from(["high", "mid", "low"]), st.integers(0, 10**9), st.none() | st.floats(0, 1e7),
    st.sampled_from([60.0, 600.0]),
)  # fmt: skip


def _made(*given):
    """Hypothesis would guess the other fields of a compiled class, of which it doesn't see the defaults."""
    return StatusFacts(*given)


_facts = st.builds(
    _made, st.just("acme"), st.just("online"), st.sampled_from([None, "active", "paused", "draining"]),
    st.none() | st.floats(0.01, 1e6), st.lists(_waiting, max_size=3).map(tuple), _any_rates,
    st.dictionaries(st.sampled_from(REASONS), st.integers(1, 99), max_size=4), st.integers(0, 2), st.booleans(),
    st.booleans(), st.builds(Failure, st.text(max_size=20), st.none() | st.just(NOON)), st.none() | st.floats(0, 1e9),
    st.booleans(),
)  # fmt: skip


@given(_facts)
def test_any_facts_have_a_status(given_):
    """X13: one status at least, known names, most urgent first, each once, and trouble always has a remedy."""
    found = judge(given_)
    assert found == sorted(found, key=lambda status: status.urgency)
    assert len({status.name for status in found}) == len(found) > 0
    for status in found:
        assert status.name in NAMES
        assert status.severity in SEVERITIES
        assert status.label
        assert status.sentence
        assert status.remedy or status.severity in {"info", "ok"} or status.name == "late"


@given(_facts)
def test_only_failed_attempts_make_it_fail(given_):
    """X13: a running project fails if and only if at least one attempt in a hundred fails."""
    attempts = given_.rates.handled + given_.rates.failed
    runs = given_.state in {"active", "draining"}
    fails = runs and given_.rates.failed > 0 and given_.rates.failed >= 0.01 * attempts
    assert fails == any(status.name == "failing" for status in judge(given_))
