"""Messages that a subscription has settled and that are still stored, and their replays. Pure; times are unix ns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.core.message.replays import Place, make_replay
from evenlane.engine.core.wire import header_values
from evenlane.engine.core.wire import headers as h

if TYPE_CHECKING:
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.message.copies import Copy
    from evenlane.engine.core.ports import ClusterLayout, Stored
    from evenlane.quota.topics.topic import Accepted


class HandledMessage(NamedTuple):
    """A message of a shared stream, as it was put."""

    project: str
    stream: str
    sequence: int
    id: str
    place: Place
    key: str | None
    put_at: int
    expires: int  # 0: by its topic's ttl
    all_headers: dict[str, str]
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body)


def read_handled(stored: Stored, env: str, lane: LaneId) -> HandledMessage:
    """Read a message whose subject is one of a queue (`queue_subjects.parse`)."""
    stream = names.stream(env, lane)
    project, group, priority = stored.subject.split(".")[3:6]
    headers = stored.headers
    return HandledMessage(
        project,
        stream,
        stored.sequence,
        header_values.message_id(project, stream, stored.sequence, stored.at, headers),
        Place(lane.partition, int(group), priority),
        header_values.key(headers),
        header_values.read_instant(headers, h.PUT, stored.at),
        header_values.read_instant(headers, h.EXPIRES, 0),
        h.decode(headers),
        stored.body,
    )


def replay_handled(
    message: HandledMessage, cluster: str, topic: Accepted, cluster_config: ClusterLayout, now: int
) -> Copy:
    """See `make_replay`. The id has attempt 0, which no retry's has. Raises NotReplayable."""
    return make_replay(message, message.place, (message.stream, 0), cluster, topic, cluster_config, now)
