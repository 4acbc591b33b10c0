"""Sentences of the answer to "why is this waiting?" (X8)."""

from evenlane.engine.admin.why.document import document
from evenlane.engine.core.records.backlog_answer import NodeAnswer
from evenlane.engine.core.stats.backlog_tally import QueueView
from evenlane.engine.core.wire.reason_codes import REASONS
from tests.unit.admin.why.answers import answer, question, topic


def _sentence(reason, **fields):
    shown = document(question(**fields), [answer(QueueView("mid", 0, 5, reason=reason))])
    return shown["priorities"][1]["reasons"][0]["sentence"]


def test_each_reason_has_a_sentence():
    """X8: so has an unknown reason of a later release."""
    sentences = {_sentence(reason) for reason in REASONS}
    assert len(REASONS) == len(sentences)
    assert not any("it waits for" in sentence for sentence in sentences)
    assert "it waits for weather" == _sentence("weather")


def test_sentences_name_the_topics_numbers():
    assert "the topic's 0.05 msg/s are used up" == _sentence("quota", topic=topic(qps=0.05))
    alone = topic(qps=100.0, borrow=False)
    assert "the topic's 100 msg/s, or the 10 of the group are used up" == _sentence("quota", topic=alone)
    own = _sentence("concurrency", topic=topic(concurrency=7))
    assert own.endswith("its maximum of 7 messages in flight")
    pushed = topic(concurrency=7, push={"concurrency": 3})
    assert "its maximum of 3 messages in flight on a node" in _sentence("concurrency", topic=pushed)


def test_quota_sentence_names_the_share_of_a_node():
    """X8: each of several nodes has a part of the quota."""
    parts = [answer(QueueView("mid", group, 5, reason="quota"), node=node) for group, node in enumerate("ab")]
    shown = document(question(), [*parts, NodeAnswer("c")])
    sentence = shown["priorities"][1]["reasons"][0]["sentence"]
    assert "the topic's 100 msg/s, or a node's share of them, are used up" == sentence


def test_quota_sentence_names_the_usable_part():
    """X8, E3: shares of nodes without waiting messages don't count."""
    parts = [answer(QueueView("mid", 0, 5, reason="quota"), may_use=20.0), answer(node="b", may_use=70.0)]
    (reason,) = document(question(), parts)["priorities"][1]["reasons"]
    assert "the 20 of the topic's 100 msg/s are used up" == reason["sentence"]


def test_paused_sentence_names_one_of_four_causes():
    assert "the topic is paused: `evenlane topics resume acme` ends that" == _sentence(
        "paused", topic=topic(state="paused")
    )
    assert "the project has no topic" in _sentence("paused", topic=None)
    assert "can't be stored at the moment" in _sentence("paused")
    deleted = _sentence("paused", topic=topic(state="paused"), deleted=True)
    for part in ("deleted", "`evenlane topics drain acme`", "`evenlane backlog purge acme`"):
        assert part in deleted
