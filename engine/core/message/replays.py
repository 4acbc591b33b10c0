"""Makes the message that replays another one: a dead letter, or a message that was handled. Pure; times are unix ns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from evenlane.engine.base import names
from evenlane.engine.core.message.copies import Copy
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.hashing import group_of, partition_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.core.ports import ClusterLayout
    from evenlane.quota.topics.topic import Accepted

_HOUR = 3_600_000_000_000
# Headers about the message's end or its time, which a replay drops.
_OF_ITS_END = {h.REASON, h.ERROR, h.SUBJECT, h.ATTEMPT, h.DUE}


class NotReplayable(EvenlaneError):
    """The message can't be put into a queue; it stays where it is."""


class Place(NamedTuple):
    """The queue that a message came from."""

    partition: int
    group: int
    priority: str


class Replayable(Protocol):
    """A message that is stored as number `sequence` of some stream. `expires` is 0 if it expires by its topic's ttl."""

    @property
    def project(self) -> str: ...

    @property
    def sequence(self) -> int: ...

    @property
    def id(self) -> str: ...

    @property
    def key(self) -> str | None: ...

    @property
    def put_at(self) -> int: ...

    @property
    def expires(self) -> int: ...

    @property
    def all_headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...

    @property
    def size(self) -> int: ...


def make_replay(
    message: Replayable, place: Place, origin: tuple[str, int], cluster: str, topic: Accepted, layout: ClusterLayout,
    now: int,
) -> Copy:  # fmt: skip
    """The message for another first attempt, in the queue that the original came from. It is a copy, as a retry is
    (evenlane.engine.core.message.copies). That of a named subscription goes to its own stream of retries, and is due
    at once: other subscriptions must not get it.

    `origin` is the original's stream and its attempts. Its id names the original, so that it is stored once within the
    duplicate window, however often it is put. If the group takes no puts any more, the group that its key, or else its
    id, has now is used; in an ordered topic the key decides anyway. Raises NotReplayable.
    """
    if place.priority not in layout.priorities:
        known = ", ".join(layout.priorities)
        raise NotReplayable(f"its priority {place.priority!r} is not one of this cluster's: {known}")
    group = place.group
    if group >= topic.active or (topic.topic.ordered and message.key is not None):
        group = group_of(message.id if message.key is None else message.key, topic.active)
    partition = partition_of(message.project, group, topic.topic.spread, layout.partitions, layout.layout)
    queue = partition, message.project, group, place.priority
    if names.subscription_of(cluster):
        subject = names.again_subject(cluster, *queue, now // _HOUR)
    else:
        subject = names.lane_subject(cluster, *queue)
    return Copy(subject, h.encode(_headers(message, *origin, now)), message.body)


def _headers(message: Replayable, stream: str, attempts: int, now: int) -> dict[str, str]:
    kept = {name: text for name, text in h.select_carried(message.all_headers).items() if name not in _OF_ITS_END}
    if message.expires <= now:  # it would expire at once: the topic's own ttl applies, from now on
        kept.pop(h.EXPIRES, None)
    return kept | {
        h.ID: f"{message.project}:{message.id}:{stream}:{message.sequence}:{attempts}",
        h.PUT: str(message.put_at),
        h.ORIGIN: f"{stream}:{message.sequence}",
    }
