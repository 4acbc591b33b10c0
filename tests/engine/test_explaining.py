"""From queues to the answer to "why is this waiting?" (X8): adding up, and the words of it."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.explaining import Question, document
from engine.forecast import Rates
from engine.waiting import Answer, Count, Part, Tally, View, merged, ranked
from quota.topic import Topic

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
REASONS = (  # surfaces.md
    "quota", "concurrency", "headroom", "higher_priority", "fairness", "not_due", "ordered", "endpoint", "paused",
    "no_owner", "handlers_busy",
)  # fmt: skip
PRIORITIES = ("high", "mid", "low")


def topic(**fields) -> Topic:
    return Topic(**{"qps": 100.0, "groups": 10, "burst": 1, "weight": 100.0, "spread": 2, **fields})


def question(**fields) -> Question:
    given = {"project": "acme", "env": "online", "at": NOW, "priorities": PRIORITIES, "topic": topic()}
    return Question(**{**given, "max_group_qps": 150.0, **fields})


def answer(*views: View, node: str = "a", **fields) -> Answer:
    tally = Tally(NOW)
    for view in views:
        tally.add(view)
    return Answer(node, len(views), tally.parts, tally.deepest, **fields)


# ---- adding up


def test_tally_by_hand():
    """X8: three groups: two wait for quota, one of them with delayed messages beside, one is being read."""
    tally = Tally(NOW)
    tally.add(View("mid", 0, 5, head_at=NOW - 3 * SECOND, reason="quota"))
    tally.add(View("mid", 1, 7, delayed=2, next_due=NOW + 4 * SECOND, head_at=NOW - 9 * SECOND, reason="quota"))
    tally.add(View("mid", 2, 4))
    tally.add(View("low", 1, 6, reason="higher_priority", head_at=NOW + SECOND))  # its clock is ahead
    tally.add(View("high", 0, 0, delayed=1, next_due=NOW - SECOND, reason=None))
    tally.running("mid")
    assert {
        "mid": Part(16, 1, 2, 9.0, 4.0, {"quota": Count(2, 12), "not_due": Count(1, 2)}),
        "low": Part(6, 0, 0, 0.0, None, {"higher_priority": Count(1, 6)}),
        "high": Part(0, 0, 1, None, 0.0, {"not_due": Count(1, 1)}),
    } == tally.parts
    assert 13 == tally.deepest  # group 1: 7 and 6


def test_no_queue_is_nothing():
    tally = Tally(NOW)
    assert ({}, 0) == (tally.parts, tally.deepest)


def test_ranked_by_groups_then_messages():
    """X8: the most frequent first."""
    reasons = {"quota": Count(2, 5), "headroom": Count(3, 3), "fairness": Count(2, 9), "no_owner": Count(2, None)}
    assert ["headroom", "fairness", "quota", "no_owner"] == [reason for reason, _ in ranked(reasons)]


views = st.builds(
    View,
    st.sampled_from(PRIORITIES), st.integers(0, 5), st.integers(0, 1_000), st.integers(0, 9),
    st.integers(NOW, NOW + 100 * SECOND), st.none() | st.integers(NOW - 100 * SECOND, NOW),
    st.none() | st.sampled_from(REASONS),
)  # fmt: skip


@given(st.lists(views), st.lists(views))
def test_merging_nodes_is_as_one_node_with_all_queues(some, others):
    """X8: an answer over several nodes says the same as if one had all groups."""
    apart, whole = [answer(*some).parts, answer(*others).parts], answer(*some, *others).parts
    for name in PRIORITIES:
        assert whole.get(name, Part()) == merged(parts[name] for parts in apart if name in parts)
    assert sum(view.backlog for view in (*some, *others)) == sum(part.waiting for part in whole.values())


@given(st.lists(views))
def test_an_answer_crosses_the_wire(some):
    sent = answer(*some, rates=Rates(1.0, 2.0, 3.0, 1.0), notes=["n"])
    assert sent == msgspec.json.decode(msgspec.json.encode(sent), type=Answer)


# ---- the answer


def test_document_by_hand():
    """X8, X7: two nodes, one of which is silent about a third."""
    first = answer(
        View("mid", 0, 500, head_at=NOW - 3 * SECOND, reason="quota"),
        View("low", 0, 500, head_at=NOW - 5 * SECOND, reason="higher_priority"),
        rates=Rates(10.0, 60.0, 0.0, 1.0),
    )
    second = answer(View("mid", 1, 0, delayed=2, next_due=NOW + 4 * SECOND), node="b", rates=Rates(seconds=1.0))
    told = document(question(silent=["c"], within=10.0), [first, second])
    assert {
        "project": "acme",
        "env": "online",
        "at": "2027-01-15T08:00:00.000Z",
        "backlog": 1_000,
        "oldest_seconds": 5.0,
        "in_flight": 0,
        "priorities": [
            {
                "priority": "high", "waiting": 0, "oldest_seconds": None, "in_flight": 0, "delayed": 0,
                "next_due": None, "reasons": [],
            },
            {
                "priority": "mid", "waiting": 500, "oldest_seconds": 3.0, "in_flight": 0, "delayed": 2,
                "next_due": "2027-01-15T08:00:04.000Z",
                "reasons": [
                    {
                        "reason": "quota", "groups": 1, "messages": 500,
                        "sentence": "the topic's 100 msg/s are used up",
                    },
                    {
                        "reason": "not_due", "groups": 1, "messages": 2,
                        "sentence": "2 are not due yet, the next in 4s",
                    },
                ],
            },
            {
                "priority": "low", "waiting": 500, "oldest_seconds": 5.0, "in_flight": 0, "delayed": 0,
                "next_due": None,
                "reasons": [
                    {
                        "reason": "higher_priority", "groups": 1, "messages": 500,
                        "sentence": "messages of a higher priority in the same group go first",
                    }
                ],
            },
        ],
        "rates": {"arriving": 10.0, "handled": 60.0, "failed": 0.0, "quota": 100.0, "measured_seconds": 1.0},
        "forecast": {
            "gone_in_seconds": 20.0,
            "sentence": "gone in 20s at this rate: 1,000 wait, 10/s arrive and 60/s are taken",
            "within_seconds": 10.0,
            "qps_to_clear_within": 110,
            "within_sentence": "110 QPS would clear it within 10s",
            "command": "evenlane topics set acme --qps 110",
        },
        "nodes": [
            {"id": "a", "answered": True, "waiting": 1_000},
            {"id": "b", "answered": True, "waiting": 0},
            {"id": "c", "answered": False, "waiting": None},
        ],
        "notes": ["no answer came from c: what waits there is missing here"],
    } == told  # fmt: skip


def test_one_priority_is_shown_and_totals_stay():
    first = answer(View("mid", 0, 5, reason="quota"), View("low", 0, 6, reason="quota"))
    told = document(question(only="low"), [first])
    assert (11, ["low"]) == (told["backlog"], [part["priority"] for part in told["priorities"]])


def test_groups_without_an_owner_are_told_in_each_priority():
    """X8: what waits there isn't known, and isn't counted as nothing."""
    told = document(question(unowned=4), [answer(View("mid", 0, 5, reason="no_owner"))])
    reasons = {part["priority"]: part["reasons"] for part in told["priorities"]}
    assert {("no_owner", 4, None)} == {(r["reason"], r["groups"], r["messages"]) for r in reasons["high"]}
    assert {("no_owner", 5, None)} == {(r["reason"], r["groups"], r["messages"]) for r in reasons["mid"]}
    assert "isn't known" in reasons["mid"][0]["sentence"]


def _sentence(reason, **fields):
    told = document(question(**fields), [answer(View("mid", 0, 5, reason=reason))])
    return told["priorities"][1]["reasons"][0]["sentence"]


def test_each_reason_has_a_sentence():
    """X8: all words of the surface, and one that a later release may bring."""
    sentences = {_sentence(reason) for reason in REASONS}
    assert len(REASONS) == len(sentences)
    assert not any("it waits for" in sentence for sentence in sentences)
    assert "it waits for weather" == _sentence("weather")


def test_sentences_name_the_topics_own_numbers():
    assert "the topic's 0.05 msg/s are used up" == _sentence("quota", topic=topic(qps=0.05))
    alone = topic(qps=100.0, borrow=False)
    assert "the topic's 100 msg/s, or the 10 of the group are used up" == _sentence("quota", topic=alone)
    assert "all of the 7 messages in flight" in _sentence("concurrency", topic=topic(concurrency=7))


def test_paused_may_have_three_causes():
    assert "the topic is paused: `evenlane topics resume acme` ends that" == _sentence(
        "paused", topic=topic(state="paused")
    )
    assert "the project has no topic" in _sentence("paused", topic=None)
    assert "can't be stored at the moment" in _sentence("paused")


def test_a_project_without_topic_is_told_how_it_gets_one():
    told = document(question(topic=None), [answer(View("mid", 0, 5, reason="paused"))])
    assert (None, None) == (told["rates"]["quota"], told["forecast"]["gone_in_seconds"])
    assert ["the project has no topic: `evenlane topics set acme --qps 100 --env online` makes one"] == told["notes"]


def test_what_holds_up_the_whole_is_not_its_own_higher_priorities():
    """X7: low waits for high, and high for the quota: a higher quota does help."""
    views = [View("high", group, 10, reason="quota") for group in range(3)]
    views += [View("low", group, 900, reason="higher_priority") for group in range(3)]
    told = document(question(within=10.0), [answer(*views)])
    assert "273 QPS would clear it within 10s" == told["forecast"]["within_sentence"]


def test_notes_of_nodes_and_failures_and_other_environments():
    answers = [answer(View("mid", 0, 5_000, reason="quota"), notes=["it is late"], rates=Rates(0.0, 1.0, 2.5, 1.0))]
    told = document(question(env="sandbox", within=100.0), answers)
    expected = ["node a: it is late", "of what was taken, 2.5/s failed or expired; what is retried comes back"]
    assert expected == told["notes"]
    told = document(question(env="sandbox", within=40.0), answers)
    assert "evenlane topics set acme --qps 125 --env sandbox" == told["forecast"]["command"]


texts = st.text(st.characters(codec="utf-8"), max_size=20)
answers = st.lists(
    st.builds(
        lambda node, views, rates, notes: answer(*views, node=node, rates=rates, notes=notes),
        texts, st.lists(views), st.builds(Rates, *[st.floats(0, 1e6)] * 4), st.lists(texts),
    ),
    max_size=4,
)  # fmt: skip


@given(answers, st.none() | st.just(topic()), st.none() | st.floats(0.01, 1e6), st.integers(0, 3))
def test_document_property(answers, topic, within, unowned):
    """X8: it is always plain JSON, complete, and its parts add up to its totals."""
    told = document(question(topic=topic, within=within, unowned=unowned), answers)
    assert told == json.loads(json.dumps(told, allow_nan=False))
    assert told["backlog"] == sum(part["waiting"] for part in told["priorities"])
    ages = [part["oldest_seconds"] for part in told["priorities"] if part["oldest_seconds"] is not None]
    assert told["oldest_seconds"] == max(ages, default=None)
    for part in told["priorities"]:
        assert all(each["sentence"] for each in part["reasons"])
        groups = [each["groups"] for each in part["reasons"]]
        assert groups == sorted(groups, reverse=True)
