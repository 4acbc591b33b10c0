"""The answer to "why is this waiting?" (X8): tallies of queues, and the document made of them."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.admin.why.document import document
from evenlane.engine.core.records.backlog_answer import Count, NodeAnswer, QueueCount, Rates
from evenlane.engine.core.stats.backlog_tally import QueueView, Tally, merge_counts, rank_reasons
from evenlane.engine.core.stats.forecast import UNKNOWN
from evenlane.engine.core.wire.reason_codes import REASONS
from tests.unit.admin.why.answers import NOW, PRIORITIES, SECOND, answer, question, topic

ROUGH = ", from only 1 s of measurements; ask again in a minute"


def test_tally_by_hand():
    """X8: of three groups, two wait for quota, one of them also has delayed messages, and one is being read."""
    tally = Tally(NOW)
    tally.add(QueueView("mid", 0, 5, head_at=NOW - 3 * SECOND, reason="quota"))
    tally.add(QueueView("mid", 1, 7, delayed=2, next_due=NOW + 4 * SECOND, head_at=NOW - 9 * SECOND, reason="quota"))
    tally.add(QueueView("mid", 2, 4))
    tally.add(QueueView("low", 1, 6, reason="higher_priority", head_at=NOW + SECOND))  # its clock is ahead
    tally.add(QueueView("high", 0, 0, delayed=1, next_due=NOW - SECOND, reason=None))
    tally.add_running("mid")
    assert {
        "mid": QueueCount(16, 1, 2, 9.0, 4.0, {"quota": Count(2, 12), "not_due": Count(1, 2)}),
        "low": QueueCount(6, 0, 0, 0.0, None, {"higher_priority": Count(1, 6)}),
        "high": QueueCount(0, 0, 1, None, 0.0, {"not_due": Count(1, 1)}),
    } == tally.parts
    assert 13 == tally.deepest  # group 1: 7 and 6


def test_empty_tally_has_no_parts():
    tally = Tally(NOW)
    assert ({}, 0) == (tally.parts, tally.deepest)


def test_reasons_are_ranked_by_groups_then_messages():
    """X8: the most frequent first."""
    reasons = {"quota": Count(2, 5), "headroom": Count(3, 3), "fairness": Count(2, 9), "no_owner": Count(2, None)}
    assert ["headroom", "fairness", "quota", "no_owner"] == [reason for reason, _ in rank_reasons(reasons)]


views = st.builds(
    QueueView,
    st.sampled_from(PRIORITIES), st.integers(0, 5), st.integers(0, 1_000), st.integers(0, 9),
    st.integers(NOW, NOW + 100 * SECOND), st.none() | st.integers(NOW - 100 * SECOND, NOW),
    st.none() | st.sampled_from(REASONS),
)  # fmt: skip


@given(st.lists(views), st.lists(views))
def test_merged_nodes_equal_one_node_with_all_queues(some, others):
    """X8."""
    apart, whole = [answer(*some).parts, answer(*others).parts], answer(*some, *others).parts
    for name in PRIORITIES:
        assert whole.get(name, QueueCount()) == merge_counts(parts[name] for parts in apart if name in parts)
    assert sum(view.backlog for view in (*some, *others)) == sum(part.waiting for part in whole.values())


@given(st.lists(views))
def test_answer_survives_encoding(some):
    sent = answer(*some, rates=Rates(1.0, 2.0, 3.0, 1.0), notes=["n"])
    assert sent == msgspec.json.decode(msgspec.json.encode(sent), type=NodeAnswer)


# ---- the answer


def test_document_by_hand():
    """X8, X7: two nodes answer, and a third one is silent."""
    first = answer(
        QueueView("mid", 0, 500, head_at=NOW - 3 * SECOND, reason="quota"),
        QueueView("low", 0, 500, head_at=NOW - 5 * SECOND, reason="higher_priority"),
        rates=Rates(10.0, 60.0, 0.0, 1.0), waited_s=45.0,
    )  # fmt: skip
    first.parts["mid"].waited |= {"quota": 40.0, "handlers_busy": 0.5}
    second = answer(QueueView("mid", 1, 0, delayed=2, next_due=NOW + 4 * SECOND), node="b", rates=Rates(seconds=1.0))
    shown = document(question(silent=["c"], within=10.0), [first, second])
    assert {
        "project": "acme",
        "env": "online",
        "subscription": None,
        "at": "2027-01-15T08:00:00.000Z",
        "state": "active",
        "deleted": False,
        "status": {
            "name": "waiting",
            "severity": "info",
            "label": "waits: quota",
            "sentence": "1,000 wait, the oldest for 5s; it waits for its quota",
            "remedy": "",
            "urgency": 38,
        },
        "also": [],
        "backlog": 1_000,
        "oldest_seconds": 5.0,
        "in_flight": 0,
        "waited_over_seconds": 45.0,
        "priorities": [
            {
                "priority": "high", "waiting": 0, "oldest_seconds": None, "in_flight": 0, "delayed": 0,
                "next_due": None, "reasons": [], "waited": [], "waited_sentence": "",
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
                "waited_sentence": "in the last 45s, mid waited in 0.9 of 10 groups at a time, on average:"
                " 99% of it for quota, 1% of it for handlers_busy",
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
                "waited_sentence": "",
            },
        ],
        "rates": {
            **dict.fromkeys(("arriving", "leaving", "handled", "failed", "dead", "expired", "measured_seconds")),
            "quota": 100.0,
            "sentence": "not known, as the backlog on c isn't reported; a quota of 100/s",
        },
        "forecast": {
            "gone_in_seconds": None,
            "sentence": "not known: at least 1,000 wait, and the backlog on c isn't reported",
            "within_seconds": 10.0,
            "qps_to_clear_within": None,
            "within_sentence": "not known, as the backlog on c isn't reported",
            "command": None,
        },
        "nodes": [
            {"id": "a", "answered": True, "waiting": 1_000},
            {"id": "b", "answered": True, "waiting": 0},
            {"id": "c", "answered": False, "waiting": None},
        ],
        "notes": ["no answer came from c: the backlog there is missing here"],
    } == shown  # fmt: skip


def test_rates_and_forecast_by_hand():
    """X7: over two nodes."""
    answers = [
        answer(QueueView("mid", 0, 1_000, reason="quota"), rates=Rates(10.0, 60.0, 2.0, 1.0, dead=0.5, expired=0.5)),
        answer(node="b", rates=Rates(0.0, 0.0, 0.0, 9.0)),
    ]
    shown = document(question(within=10.0), answers)
    assert {
        "arriving": 10.0, "leaving": 62.5, "handled": 60.0, "failed": 2.0, "dead": 0.5, "expired": 0.5, "quota": 100.0,
        "measured_seconds": 1.0,
        "sentence": "10/s arrive, 60/s are handled, 2/s fail, 0.5/s expire, a quota of 100/s; measured over 1.0 s",
    } == shown["rates"]  # fmt: skip
    assert {
        "gone_in_seconds": 19.048,
        "sentence": "gone in 19s at this rate: 1,000 wait, 10/s arrive and 62.5/s are taken",
        "within_seconds": 10.0,
        "qps_to_clear_within": 110,
        "within_sentence": f"110 QPS would clear it within 10s{ROUGH}",
        "command": "evenlane topics set acme --qps 110",
    } == shown["forecast"]


def test_a_node_without_queues_of_the_project_does_not_shorten_the_measurement():
    """X12: its measurement may have just begun. If no node has a queue, the shortest one counts."""
    answers = [answer(QueueView("mid", 0, 5), rates=Rates(seconds=30.0)), answer(node="b", rates=Rates(seconds=1.0))]
    assert 30.0 == document(question(), answers)["rates"]["measured_seconds"]
    assert 1.0 == document(question(), answers[1:])["rates"]["measured_seconds"]


def test_a_node_that_has_just_lost_its_queues_counts():
    """X12: with what moves there, or with unknown rates."""
    here = answer(QueueView("mid", 0, 5), rates=Rates(seconds=30.0))
    moved = answer(node="b", rates=Rates(arriving=2.0, seconds=3.0))
    shown = document(question(), [here, moved])["rates"]
    assert (2.0, 3.0) == (shown["arriving"], shown["measured_seconds"])
    assert document(question(), [here, answer(node="b", rates=UNKNOWN)])["rates"]["measured_seconds"] is None


def test_rates_are_unknown_if_one_node_does_not_know_them():
    """X7, fault 1: right after a takeover."""
    known = answer(QueueView("mid", 0, 1_000, reason="quota"), rates=Rates(10.0, 60.0, 2.5, 1.0))
    answers = [known, answer(node="b", rates=UNKNOWN)]
    shown = document(question(within=10.0), answers)
    assert [None] * 3 == [shown["rates"][name] for name in ("arriving", "handled", "failed")]
    why = "rates are being measured again, as partitions have just moved"
    assert f"not known yet: {why}; a quota of 100/s" == shown["rates"]["sentence"]
    assert (None, f"not known yet: 1,000 wait, and {why}") == (
        shown["forecast"]["gone_in_seconds"], shown["forecast"]["sentence"],
    )  # fmt: skip
    assert (None, f"not known yet: {why}") == (shown["forecast"]["command"], shown["forecast"]["within_sentence"])
    assert [] == shown["notes"]


def test_rates_are_unknown_if_a_group_has_no_owner():
    """X7."""
    shown = document(question(unserved=4), [answer(QueueView("mid", 0, 5), rates=Rates(10.0, 60.0, 0.0, 1.0))])
    missing = "the backlog in partitions that no node serves isn't reported"
    assert (None, f"not known, as {missing}; a quota of 100/s") == (
        shown["rates"]["arriving"], shown["rates"]["sentence"],
    )  # fmt: skip
    assert f"not known: at least 5 wait, and {missing}" == shown["forecast"]["sentence"]


def test_selection_of_a_priority_leaves_the_totals():
    first = answer(QueueView("mid", 0, 5, reason="quota"), QueueView("low", 0, 6, reason="quota"))
    shown = document(question(only="low"), [first])
    assert (11, ["low"]) == (shown["backlog"], [part["priority"] for part in shown["priorities"]])


def test_groups_without_an_owner_are_in_each_priority():
    """X8: their backlog is unknown, and not 0."""
    shown = document(question(unserved=4), [answer(QueueView("mid", 0, 5, reason="no_owner"))])
    reasons = {part["priority"]: part["reasons"] for part in shown["priorities"]}
    assert {("no_owner", 4, None)} == {(r["reason"], r["groups"], r["messages"]) for r in reasons["high"]}
    assert {("no_owner", 5, None)} == {(r["reason"], r["groups"], r["messages"]) for r in reasons["mid"]}
    assert "may not be known" in reasons["mid"][0]["sentence"]


def test_no_forecast_with_an_unknown_backlog():
    """X7: a dead node may have more messages."""
    for unknown in (question(unserved=3), question(silent=["c"])):
        forecast = document(unknown, [answer()])["forecast"]
        assert forecast["gone_in_seconds"] is None
        assert forecast["sentence"].startswith("not known: at least 0 wait")


def test_waited_seconds_of_nodes_add_up():
    """X8."""
    answers = [answer(QueueView("mid", 0, 5, reason="quota"), node=node, waited_s=30.0) for node in "ab"]
    for each in answers:
        each.parts["mid"].waited["quota"] = 20.0
    shown = document(question(), answers)
    assert (30.0, [{"reason": "quota", "seconds": 40.0}]) == (
        shown["waited_over_seconds"], shown["priorities"][1]["waited"],
    )  # fmt: skip


def test_state_is_the_topics_whatever_the_reasons():
    """A paused topic may have no message that waits for that reason."""
    for fields, expected in (
        ({"topic": topic(state="paused")}, ("paused", False)),
        ({"topic": topic(state="paused"), "deleted": True}, ("paused", True)),
        ({"topic": topic(state="draining")}, ("draining", False)),
        ({"topic": None}, (None, False)),
    ):
        shown = document(question(**fields), [answer()])
        assert expected == (shown["state"], shown["deleted"])


def test_paused_topic_has_a_forecast_for_its_resumption():
    """X7: in addition to `never`."""
    views = [QueueView("mid", 0, 80, reason="paused"), QueueView("low", 0, 100, reason="paused")]
    measured = Rates(10.0, 0.0, 0.0, 5.0)
    shown = document(question(topic=topic(state="paused")), [answer(*views, rates=measured)])["forecast"]
    assert (None, "never, as long as it is paused", 2.0) == (
        shown["gone_in_seconds"], shown["sentence"], shown["resumed_gone_in_seconds"],
    )  # fmt: skip
    resumed = "once it is resumed, gone in 2s at its quota of 100 QPS, if nothing else holds it up"
    assert resumed == shown["resumed_sentence"]
    shown = document(question(topic=topic(state="paused"), deleted=True), [answer(*views, rates=measured)])
    assert shown["forecast"]["resumed_sentence"].startswith("once it is drained, gone in 2s")
    assert "resumed_sentence" not in document(question(), [answer(*views)])["forecast"]


def test_project_without_a_topic_has_a_note_with_the_command():
    shown = document(question(topic=None), [answer(QueueView("mid", 0, 5, reason="paused"))])
    assert (None, None) == (shown["rates"]["quota"], shown["forecast"]["gone_in_seconds"])
    assert ["the project has no topic: `evenlane topics set acme --qps 100 --env online` creates one"] == shown["notes"]


def test_higher_quota_helps_lower_priorities():
    """X7: low waits for high, and high for the quota."""
    views = [QueueView("high", group, 10, reason="quota") for group in range(3)]
    views += [QueueView("low", group, 900, reason="higher_priority") for group in range(3)]
    shown = document(question(within=10.0), [answer(*views)])
    assert f"273 QPS would clear it within 10s{ROUGH}" == shown["forecast"]["within_sentence"]


def test_notes_and_command_name_failures_and_the_environment():
    answers = [
        answer(QueueView("mid", 0, 5_000, reason="quota"), notes=["it is late"], rates=Rates(0.0, 1.0, 2.5, 1.0))
    ]
    shown = document(question(env="sandbox", within=100.0), answers)
    assert (["node a: it is late"], "failing") == (shown["notes"], shown["status"]["name"])
    shown = document(question(env="sandbox", within=40.0), answers)
    assert "evenlane topics set acme --qps 125 --env sandbox" == shown["forecast"]["command"]


texts = st.text(st.characters(codec="utf-8"), max_size=20)
answers = st.lists(
    st.builds(
        lambda node, views, rates, notes: answer(*views, node=node, rates=rates, notes=notes),
        texts, st.lists(views), st.builds(Rates, *[st.floats(0, 1e6)] * 4), st.lists(texts),
    ),
    max_size=4,
)  # fmt: skip


@given(answers, st.none() | st.just(topic()), st.none() | st.floats(0.01, 1e6), st.integers(0, 3))
def test_document_is_plain_json_and_adds_up(answers, topic, within, unowned):
    """X8."""
    shown = document(question(topic=topic, within=within, unserved=unowned), answers)
    assert shown == json.loads(json.dumps(shown, allow_nan=False))
    assert shown["backlog"] == sum(part["waiting"] for part in shown["priorities"])
    ages = [part["oldest_seconds"] for part in shown["priorities"] if part["oldest_seconds"] is not None]
    assert shown["oldest_seconds"] == max(ages, default=None)
    for part in shown["priorities"]:
        assert all(each["sentence"] for each in part["reasons"])
        groups = [each["groups"] for each in part["reasons"]]
        assert groups == sorted(groups, reverse=True)


def test_trouble_of_a_node_is_a_note():
    """F1: a blocked node is named, whether it answers or not."""
    sentence = "node b has been blocked for 12 s by jobs.py:41"
    assert sentence in document(question(silent=["b"], troubles=[sentence]), [answer()])["notes"]


def test_quota_to_clear_rests_on_the_longer_measurement():
    """X7: if all nodes have one. A short one is called rough in the same sentence."""
    short, long = Rates(arriving=100.0, handled=10.0, seconds=5.0), Rates(arriving=20.0, handled=10.0, seconds=70.0)
    waits = QueueView("mid", 0, 600, reason="quota")
    asked = question(within=60.0, topic=topic(qps=10.0))
    shown = document(asked, [answer(waits, rates=short, long_rates=long)])
    assert (100.0, 30) == (shown["rates"]["arriving"], shown["forecast"]["qps_to_clear_within"])
    assert "30 QPS would clear it within 1m" == shown["forecast"]["within_sentence"]
    for unknown in (None, Rates()):
        answers = [
            answer(waits, rates=short, long_rates=long),
            answer(waits, node="b", rates=short, long_rates=unknown),
        ]
        sentence = document(asked, answers)["forecast"]["within_sentence"]
        assert sentence.startswith("220 QPS would clear it within 1m")
        assert sentence.endswith(ROUGH.replace("1 s", "5 s"))
