"""Questions and answers of `evenlane why`."""

from evenlane.engine.admin.why.question import Question
from evenlane.engine.core.records.backlog_answer import NodeAnswer, Rates
from evenlane.engine.core.stats.backlog_tally import QueueView, Tally
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


def answer(*views: QueueView, node: str = "a", **fields) -> NodeAnswer:
    tally = Tally(NOW)
    for view in views:
        tally.add(view)
    return NodeAnswer(node, len(views), tally.parts, tally.deepest, **{"rates": RATES, **fields})
