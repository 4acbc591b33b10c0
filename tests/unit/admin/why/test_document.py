"""From queues to the answer to "why is this waiting?" (X8): adding up, and the words of it."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.admin.why.document import Question, document
from evenlane.engine.core.stats.backlog_tally import Count, NodeAnswer, QueueCount, Tally, View, merged, ranked
from evenlane.engine.core.stats.forecast import UNKNOWN, Rates
from evenlane.engine.core.wire.reason_codes import REASONS
from evenlane.quota.topics.topic import Topic

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
PRIORITIES = ("high", "mid", "low")
RATES = Rates(seconds=1.0)  # nothing comes and goes


def topic(**fields) -> Topic:
    return Topic(**{"qps": 100.0, "groups": 10, "burst": 1, "weight": 100.0, "spread": 2, **fields})


def question(**fields) -> Question:
    given = {"project": "acme", "env": "online", "at": NOW, "priorities": PRIORITIES, "topic": topic()}
    return Question(**{**given, "max_group_qps": 150.0, **fields})


def answer(*views: View, node: str = "a", **fields) -> NodeAnswer:
    tally = Tally(NOW)
    for view in views:
        tally.add(view)
    return NodeAnswer(node, len(views), tally.parts, tally.deepest, **{"rates": RATES, **fields})


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
        "mid": QueueCount(16, 1, 2, 9.0, 4.0, {"quota": Count(2, 12), "not_due": Count(1, 2)}),
        "low": QueueCount(6, 0, 0, 0.0, None, {"higher_priority": Count(1, 6)}),
        "high": QueueCount(0, 0, 1, None, 0.0, {"not_due": Count(1, 1)}),
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
        assert whole.get(name, QueueCount()) == merged(parts[name] for parts in apart if name in parts)
    assert sum(view.backlog for view in (*some, *others)) == sum(part.waiting for part in whole.values())


@given(st.lists(views))
def test_an_answer_crosses_the_wire(some):
    sent = answer(*some, rates=Rates(1.0, 2.0, 3.0, 1.0), notes=["n"])
    assert sent == msgspec.json.decode(msgspec.json.encode(sent), type=NodeAnswer)


# ---- the answer


def test_document_by_hand():
    """X8, X7: two nodes, one of which is silent about a third."""
    first = answer(
        View("mid", 0, 500, head_at=NOW - 3 * SECOND, reason="quota"),
        View("low", 0, 500, head_at=NOW - 5 * SECOND, reason="higher_priority"),
        rates=Rates(10.0, 60.0, 0.0, 1.0), waited_s=45.0,
    )  # fmt: skip
    first.parts["mid"].waited |= {"quota": 40.0, "handlers_busy": 0.5}
    second = answer(View("mid", 1, 0, delayed=2, next_due=NOW + 4 * SECOND), node="b", rates=Rates(seconds=1.0))
    reported = document(question(silent=["c"], within=10.0), [first, second])
    assert {
        "project": "acme",
        "env": "online",
        "at": "2027-01-15T08:00:00.000Z",
        "state": "active",
        "deleted": False,
        "backlog": 1_000,
        "oldest_seconds": 5.0,
        "in_flight": 0,
        "waited_over_seconds": 45.0,
        "priorities": [
            {
                "priority": "high", "waiting": 0, "oldest_seconds": None, "in_flight": 0, "delayed": 0,
                "next_due": None, "reasons": [], "waited": [],
            },
            {
                "priority": "mid", "waiting": 500, "oldest_seconds": 3.0, "in_flight": 0, "delayed": 2,
                "next_due": "2027-01-15T08:00:04.000Z",
                "reasons": [
                    {
                        "reason": "quota", "groups": 1, "messages": 500,
                        "sentence": "the topic's 100 msg/s, or a node's share of them, are used up",
                    },
                    {
                        "reason": "not_due", "groups": 1, "messages": 2,
                        "sentence": "2 are not due yet, the next in 4s",
                    },
                ],
                "waited": [{"reason": "quota", "seconds": 40.0}, {"reason": "handlers_busy", "seconds": 0.5}],
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
                "waited": [],
            },
        ],
        "rates": {
            "arriving": None, "handled": None, "failed": None, "quota": 100.0, "measured_seconds": None,
            "sentence": "not known, as what waits on c isn't told; a quota of 100/s",
        },
        "forecast": {
            "gone_in_seconds": None,
            "sentence": "not known: 1,000 wait at least, and what waits on c isn't told",
            "within_seconds": 10.0,
            "qps_to_clear_within": None,
            "within_sentence": "not known, as what waits on c isn't told",
            "command": None,
        },
        "nodes": [
            {"id": "a", "answered": True, "waiting": 1_000},
            {"id": "b", "answered": True, "waiting": 0},
            {"id": "c", "answered": False, "waiting": None},
        ],
        "notes": ["no answer came from c: what waits there is missing here"],
    } == reported  # fmt: skip


def test_rates_and_forecast_of_what_is_known():
    """X7: the sum over two nodes; hand-computed."""
    answers = [
        answer(View("mid", 0, 1_000, reason="quota"), rates=Rates(10.0, 60.0, 2.5, 1.0)),
        answer(node="b", rates=Rates(0.0, 0.0, 0.0, 9.0)),
    ]
    reported = document(question(within=10.0), answers)
    assert {
        "arriving": 10.0, "handled": 60.0, "failed": 2.5, "quota": 100.0, "measured_seconds": 1.0,
        "sentence": "10/s arrive, 60/s are handled, a quota of 100/s; measured over 1.0 s",
    } == reported["rates"]  # fmt: skip
    assert {
        "gone_in_seconds": 19.048,
        "sentence": "gone in 19s at this rate: 1,000 wait, 10/s arrive and 62.5/s are taken",
        "within_seconds": 10.0,
        "qps_to_clear_within": 110,
        "within_sentence": "110 QPS would clear it within 10s",
        "command": "evenlane topics set acme --qps 110",
    } == reported["forecast"]


def test_rates_that_one_node_doesnt_know_are_not_told():
    """X7, fault 1: nothing rather than something wrong, right after a take-over."""
    known = answer(View("mid", 0, 1_000, reason="quota"), rates=Rates(10.0, 60.0, 2.5, 1.0))
    answers = [known, answer(node="b", rates=UNKNOWN)]
    reported = document(question(within=10.0), answers)
    assert [None] * 3 == [reported["rates"][name] for name in ("arriving", "handled", "failed")]
    why = "rates are measured anew, as partitions have just changed hands"
    assert f"not known yet: {why}; a quota of 100/s" == reported["rates"]["sentence"]
    assert (None, f"not known yet: 1,000 wait, and {why}") == (
        reported["forecast"]["gone_in_seconds"], reported["forecast"]["sentence"],
    )  # fmt: skip
    assert (None, f"not known yet: {why}") == (reported["forecast"]["command"], reported["forecast"]["within_sentence"])
    assert [] == reported["notes"]


def test_rates_of_groups_without_an_owner_are_not_told():
    """X7: they would be those of the others."""
    reported = document(question(unserved=4), [answer(View("mid", 0, 5), rates=Rates(10.0, 60.0, 0.0, 1.0))])
    missing = "what waits in partitions that no node serves isn't told"
    assert (None, f"not known, as {missing}; a quota of 100/s") == (
        reported["rates"]["arriving"], reported["rates"]["sentence"],
    )  # fmt: skip
    assert f"not known: 5 wait at least, and {missing}" == reported["forecast"]["sentence"]


def test_one_priority_is_shown_and_totals_stay():
    first = answer(View("mid", 0, 5, reason="quota"), View("low", 0, 6, reason="quota"))
    reported = document(question(only="low"), [first])
    assert (11, ["low"]) == (reported["backlog"], [part["priority"] for part in reported["priorities"]])


def test_groups_without_an_owner_are_told_in_each_priority():
    """X8: what waits there isn't known, and isn't counted as nothing."""
    reported = document(question(unserved=4), [answer(View("mid", 0, 5, reason="no_owner"))])
    reasons = {part["priority"]: part["reasons"] for part in reported["priorities"]}
    assert {("no_owner", 4, None)} == {(r["reason"], r["groups"], r["messages"]) for r in reasons["high"]}
    assert {("no_owner", 5, None)} == {(r["reason"], r["groups"], r["messages"]) for r in reasons["mid"]}
    assert "may not be known" in reasons["mid"][0]["sentence"]


def _sentence(reason, **fields):
    reported = document(question(**fields), [answer(View("mid", 0, 5, reason=reason))])
    return reported["priorities"][1]["reasons"][0]["sentence"]


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
    own = _sentence("concurrency", topic=topic(concurrency=7))
    assert own.endswith("all of the 7 messages in flight that it may have")
    pushed = topic(concurrency=7, push={"concurrency": 3})
    assert "all of the 3 messages in flight that it may have on a node" in _sentence("concurrency", topic=pushed)


def test_what_a_node_has_of_a_quota_may_be_used_up_alone():
    """X8: over several nodes each has a part of the quota at any moment."""
    parts = [answer(View("mid", group, 5, reason="quota"), node=node) for group, node in enumerate("ab")]
    reported = document(question(), [*parts, NodeAnswer("c")])
    sentence = reported["priorities"][1]["reasons"][0]["sentence"]
    assert "the topic's 100 msg/s, or a node's share of them, are used up" == sentence


def test_what_the_nodes_may_use_now_is_said_where_it_isn_t_all():
    """X8, E3: shares move; those of nodes on which nothing waits say nothing."""
    parts = [answer(View("mid", 0, 5, reason="quota"), may_use=20.0), answer(node="b", may_use=70.0)]
    (reason,) = document(question(), parts)["priorities"][1]["reasons"]
    assert "the 20 of the topic's 100 msg/s are used up" == reason["sentence"]


def test_nothing_is_foretold_of_what_is_not_known():
    """X7: a node that died holds more than what is told."""
    for unknown in (question(unserved=3), question(silent=["c"])):
        forecast = document(unknown, [answer()])["forecast"]
        assert forecast["gone_in_seconds"] is None
        assert forecast["sentence"].startswith("not known: 0 wait at least")


def test_what_waited_on_several_nodes_adds_up():
    """X8"""
    answers = [answer(View("mid", 0, 5, reason="quota"), node=node, waited_s=30.0) for node in "ab"]
    for each in answers:
        each.parts["mid"].waited["quota"] = 20.0
    reported = document(question(), answers)
    assert (30.0, [{"reason": "quota", "seconds": 40.0}]) == (
        reported["waited_over_seconds"], reported["priorities"][1]["waited"],
    )  # fmt: skip


def test_the_state_is_the_topics_whatever_waits():
    """As the overview tells it, which names the busiest alone: a paused one may have nothing that waits for that."""
    for fields, expected in (
        ({"topic": topic(state="paused")}, ("paused", False)),
        ({"topic": topic(state="paused"), "deleted": True}, ("paused", True)),
        ({"topic": topic(state="draining")}, ("draining", False)),
        ({"topic": None}, (None, False)),
    ):
        reported = document(question(**fields), [answer()])
        assert expected == (reported["state"], reported["deleted"])


def test_paused_may_have_four_causes():
    assert "the topic is paused: `evenlane topics resume acme` ends that" == _sentence(
        "paused", topic=topic(state="paused")
    )
    assert "the project has no topic" in _sentence("paused", topic=None)
    assert "can't be stored at the moment" in _sentence("paused")
    deleted = _sentence("paused", topic=topic(state="paused"), deleted=True)
    for part in ("deleted", "`evenlane topics drain acme`", "`evenlane backlog purge acme`"):
        assert part in deleted


def test_a_paused_topic_is_told_when_it_would_be_gone():
    """X7: `never` stays, and what its quota would do is told beside it."""
    views = [View("mid", 0, 80, reason="paused"), View("low", 0, 100, reason="paused")]
    measured = Rates(10.0, 0.0, 0.0, 5.0)
    reported = document(question(topic=topic(state="paused")), [answer(*views, rates=measured)])["forecast"]
    assert (None, "never, as long as it is paused", 2.0) == (
        reported["gone_in_seconds"], reported["sentence"], reported["resumed_gone_in_seconds"],
    )  # fmt: skip
    resumed = "once it is resumed, gone in 2s at its quota of 100 QPS, if nothing else holds it up"
    assert resumed == reported["resumed_sentence"]
    reported = document(question(topic=topic(state="paused"), deleted=True), [answer(*views, rates=measured)])
    assert reported["forecast"]["resumed_sentence"].startswith("once it is drained, gone in 2s")
    assert "resumed_sentence" not in document(question(), [answer(*views)])["forecast"]


def test_a_project_without_topic_is_told_how_it_gets_one():
    reported = document(question(topic=None), [answer(View("mid", 0, 5, reason="paused"))])
    assert (None, None) == (reported["rates"]["quota"], reported["forecast"]["gone_in_seconds"])
    assert ["the project has no topic: `evenlane topics set acme --qps 100 --env online` makes one"] == reported[
        "notes"
    ]


def test_what_holds_up_the_whole_is_not_its_own_higher_priorities():
    """X7: low waits for high, and high for the quota: a higher quota does help."""
    views = [View("high", group, 10, reason="quota") for group in range(3)]
    views += [View("low", group, 900, reason="higher_priority") for group in range(3)]
    reported = document(question(within=10.0), [answer(*views)])
    assert "273 QPS would clear it within 10s" == reported["forecast"]["within_sentence"]


def test_notes_of_nodes_and_failures_and_other_environments():
    answers = [answer(View("mid", 0, 5_000, reason="quota"), notes=["it is late"], rates=Rates(0.0, 1.0, 2.5, 1.0))]
    reported = document(question(env="sandbox", within=100.0), answers)
    expected = ["node a: it is late", "of what was taken, 2.5/s failed or expired; what is retried comes back"]
    assert expected == reported["notes"]
    reported = document(question(env="sandbox", within=40.0), answers)
    assert "evenlane topics set acme --qps 125 --env sandbox" == reported["forecast"]["command"]


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
    reported = document(question(topic=topic, within=within, unserved=unowned), answers)
    assert reported == json.loads(json.dumps(reported, allow_nan=False))
    assert reported["backlog"] == sum(part["waiting"] for part in reported["priorities"])
    ages = [part["oldest_seconds"] for part in reported["priorities"] if part["oldest_seconds"] is not None]
    assert reported["oldest_seconds"] == max(ages, default=None)
    for part in reported["priorities"]:
        assert all(each["sentence"] for each in part["reasons"])
        groups = [each["groups"] for each in part["reasons"]]
        assert groups == sorted(groups, reverse=True)


def test_what_keeps_a_node_from_its_work_is_a_note():
    """Issue 25.1: `why` names a node that is blocked, whether it answers or not."""
    sentence = "node b has been blocked for 12 s by jobs.py:41"
    assert sentence in document(question(silent=["b"], troubles=[sentence]), [answer()])["notes"]
