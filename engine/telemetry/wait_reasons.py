"""Describes wait reasons (X8) in sentences."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.core.stats.forecast import figure, format_spoken, is_stopped

if TYPE_CHECKING:
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.records.backlog_answer import QueueCount
    from evenlane.engine.node.node import Node
    from evenlane.quota.topics.topic import Topic

_NEARLY = 0.999
_HOUR = 3_600_000_000_000  # ns


# ---- on a node


def count_not_due(node: Node, queue: Queue) -> tuple[int, int]:
    """Return the number of delayed messages of a queue, and when the next is due (unix ns); (0, 0) if there are none.

    A subject names the hour; hours up to the next one are loaded.
    """
    partition = node.partitions.get(queue.partition)
    lanes = [lane for lane in partition.delay_lanes if lane.delayed.next_due() is not None] if partition else []
    if not lanes:
        return 0, 0
    hour, count, nearest = node.store.now() // _HOUR, 0, 0
    for lane, each in product(lanes, (hour - 1, hour, hour + 1)):
        name = names.delay_subject(node.cluster, lane.id, queue.project, queue.group, queue.priority, each)
        some, due = lane.delayed.count_delayed(name.encode())
        count += some
        nearest = min(due, nearest) if nearest and due else due or nearest
    return count, nearest


# ---- for people


class ReasonContext(NamedTuple):
    """The context of a reason. `topic` is the project's topic, None if there is none; `deleted` says whether it was
    deleted. `nodes` is the number of nodes with a part of the backlog; `may_use` is the rate that these nodes may use
    now, in messages per second, None if unknown. `unknown`: some nodes don't know the topic, as etcd has lost it.
    `subscription` is the one whose backlog it is, empty for the unnamed one.
    """

    project: str
    topic: Topic | None
    deleted: bool = False
    nodes: int = 1
    may_use: float | None = None
    unknown: bool = False
    subscription: str = ""

    @property
    def flag(self) -> str:
        """What commands about this subscription end with."""
        return f" --subscription {self.subscription}" if self.subscription else ""


def sentence(reason: str, part: QueueCount, about: ReasonContext) -> str:
    """Describe a reason for a person."""
    topic = about.topic
    if reason == "paused":
        return _explain_paused(about)
    if reason == "not_due":
        due = f", the next in {format_spoken(part.next_due_s)}" if part.next_due_s is not None else ""
        return f"{part.delayed:,} are not due yet{due}"
    if reason == "quota" and topic is not None:
        return f"the {_rate(topic, about.may_use)} msg/s{_parts(topic, about)} are used up"
    if reason == "concurrency" and topic is not None and (most := _most(topic)) is not None:
        where = " on a node" if about.nodes > 1 or topic.concurrency != most else ""
        return f"the topic has its maximum of {most:,} messages in flight{where}"
    if reason == "no_handler":
        shows = f"`evenlane plan{about.flag}` shows what each node handles"
        return f"the node that owns it has no handler for its project or kind: {shows}"
    return _SENTENCES.get(reason, f"it waits for {reason}")


def _rate(topic: Topic, may_use: float | None) -> str:
    """Describe the rate available where the backlog is: other nodes may use a part of it, or not have lent it yet."""
    whole = f"topic's {figure(topic.qps)}"
    if may_use is None or may_use >= _NEARLY * topic.qps:
        return whole
    return f"{figure(round(may_use, 2))} of the {whole}"


def _parts(topic: Topic, about: ReasonContext) -> str:
    """Name the parts of the quota that may be used up while the rest isn't."""
    group = f", or the {figure(topic.qps / topic.groups)} of the group" if not topic.borrow and topic.groups > 1 else ""
    return group + (", or a node's share of them," if about.nodes > 1 else "")


def _most(topic: Topic) -> int | None:
    """Return the lower of the topic's own cap and its endpoint's."""
    pushed = topic.push.get("concurrency") if topic.push is not None else None
    return min((cap for cap in (topic.concurrency, pushed) if cap is not None), default=None)


def _explain_paused(about: ReasonContext) -> str:
    project = about.project
    if about.unknown and (about.topic is None or not is_stopped(about.topic)):
        return "a node on which it waits doesn't know its topic, as etcd has lost topics"
    if not is_stopped(about.topic):
        return "its retries and dead letters can't be stored at the moment: no message of it is started until they can"
    if about.topic is None:
        return "the project has no topic: none of its messages are handed out until it has one"
    if about.deleted:
        return (
            f"the topic was deleted while messages waited: `evenlane topics drain {project}` has them handled,"
            f" `evenlane backlog purge {project}{about.flag}` drops them"
        )
    return f"the topic is paused: `evenlane topics resume {project}` ends that"


_SENTENCES = {
    "quota": "its quota is used up",
    "concurrency": "it has the maximum of messages in flight that its topic allows",
    "headroom": "it has its fair share of the slots, and the free ones are kept for lighter tenants",
    "higher_priority": "messages of a higher priority in the same group go first",
    "fairness": "other tenants are due first, by weight and by past use",
    "ordered": "an earlier message of the same key isn't done yet",
    "endpoint": "its endpoint, or its handler, asked for a pause",
    "no_owner": "no node may hand it out: its partition has no owner, or is being taken over, or the owner's lease is"
    " in doubt; its backlog may not be known",
    "handlers_busy": "all handlers of the node are busy",
}
