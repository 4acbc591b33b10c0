"""Reads dead letters, and makes the message that replays one. Pure; times are unix ns."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.base.durations import format_instant
from evenlane.engine.core.message.copies import UNROUTABLE_PROJECT, Copy
from evenlane.engine.core.ports import Stored
from evenlane.engine.core.wire import header_values
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.hashing import group_of, partition_of

if TYPE_CHECKING:
    from evenlane.engine.core.ports import ClusterLayout, Head
    from evenlane.quota.topics.topic import Accepted

_HOUR = 3_600_000_000_000
# Headers about the message's end, which a replay drops.
_OF_ITS_END = {h.REASON, h.ERROR, h.SUBJECT, h.ATTEMPT, h.DUE}


class NotReplayable(EvenlaneError):
    """The dead letter can't be put into a queue; it stays where it is."""


class Place(NamedTuple):
    """The queue that a dead letter came from."""

    partition: int
    group: int
    priority: str


class DeadLetter(NamedTuple):
    project: str  # `_stray` for an unroutable message
    sequence: int
    id: str
    reason: str
    error: str
    attempts: int
    origin: str  # <stream>:<sequence> of its last attempt
    subject: str  # of the queue that it came from, as written
    place: Place | None  # None if `subject` is no queue of the project
    key: str | None
    put_at: int  # when it was first put
    died_at: int
    expires: int  # 0: by its topic's ttl
    headers: dict[str, str]  # set by the producer itself
    all_headers: dict[str, str]
    size: int  # bytes of the body
    body: bytes

    def document(self, *, body: bool) -> dict[str, Any]:
        """In JSON's types; the body is text, or base64 if it isn't UTF-8."""
        shown: dict[str, Any] = {
            "seq": self.sequence, "id": self.id, "project": self.project, "reason": self.reason, "error": self.error,
            "attempts": self.attempts, "origin": self.origin, "subject": self.subject,
            "queue": self.place and self.place._asdict(), "key": self.key, "put_at": format_instant(self.put_at),
            "died_at": format_instant(self.died_at), "size": self.size, "headers": self.headers,
        }  # fmt: skip
        return shown | (_body(self.body) if body else {})


def read(stored: Stored, cluster: str) -> DeadLetter:
    """Read a dead letter of a cluster. It may have been put there by anyone, so missing headers are left empty."""
    project = stored.subject.rpartition(".")[2]
    headers = h.decode(stored.headers)
    subject = headers.get(h.SUBJECT, "")
    return DeadLetter(
        project=project,
        sequence=stored.sequence,
        id=_id(headers.get(h.ID, ""), project) or f"{names.dead_stream(cluster)}-{stored.sequence}-{stored.at}",
        reason=headers.get(h.REASON, ""),
        error=headers.get(h.ERROR, ""),
        attempts=h.number(stored.headers, h.ATTEMPT, 0),
        origin=headers.get(h.ORIGIN, ""),
        subject=subject,
        place=_place(subject, names.env_of(cluster), project),
        key=header_values.key(stored.headers),
        put_at=header_values.read_instant(stored.headers, h.PUT, stored.at),
        died_at=stored.at,
        expires=header_values.read_instant(stored.headers, h.EXPIRES, 0),
        headers=h.decode_user(stored.headers),
        all_headers=headers,
        size=len(stored.body),
        body=stored.body,
    )


def read_head(head: Head, subject: str, cluster: str) -> DeadLetter:
    """Read a dead letter without its body."""
    return read(Stored(head.sequence, head.at, subject, head.headers, b""), cluster)._replace(size=head.size)


def replay(dead_letter: DeadLetter, cluster: str, topic: Accepted, cluster_config: ClusterLayout, now: int) -> Copy:
    """The message for another first attempt, in the queue that the dead letter came from. It is a copy, as a retry is
    (evenlane.engine.core.message.copies). That of a named subscription goes to its own stream of retries, and is due
    at once: other subscriptions must not get it.

    Its id names the dead letter, so that it is stored once within the duplicate window, however often it is put. If the
    group takes no puts any more, the group that its key, or else its id, has now is used; in an ordered topic the key
    decides anyway. Raises NotReplayable.
    """
    place = dead_letter.place
    if place is None:
        raise NotReplayable(
            f"it doesn't say which queue of {dead_letter.project} it came from, but {dead_letter.subject!r}"
        )
    if place.priority not in cluster_config.priorities:
        known = ", ".join(cluster_config.priorities)
        raise NotReplayable(f"its priority {place.priority!r} is not one of this cluster's: {known}")
    group = place.group
    if group >= topic.active or (topic.topic.ordered and dead_letter.key is not None):
        group = group_of(dead_letter.id if dead_letter.key is None else dead_letter.key, topic.active)
    partitions, layout = cluster_config.partitions, cluster_config.layout
    partition = partition_of(dead_letter.project, group, topic.topic.spread, partitions, layout)
    queue = partition, dead_letter.project, group, place.priority
    if names.subscription_of(cluster):
        subject = names.again_subject(cluster, *queue, now // _HOUR)
    else:
        subject = names.lane_subject(cluster, *queue)
    return Copy(subject, h.encode(_headers_of_replay(dead_letter, cluster, now)), dead_letter.body)


def _headers_of_replay(dead_letter: DeadLetter, cluster: str, now: int) -> dict[str, str]:
    stream = names.dead_stream(cluster)
    kept = {name: text for name, text in h.select_carried(dead_letter.all_headers).items() if name not in _OF_ITS_END}
    if dead_letter.expires <= now:  # it would expire at once: the topic's own ttl applies, from now on
        kept.pop(h.EXPIRES, None)
    return kept | {
        h.ID: f"{dead_letter.project}:{dead_letter.id}:{stream}:{dead_letter.sequence}:{dead_letter.attempts}",
        h.PUT: str(dead_letter.put_at),
        h.ORIGIN: f"{stream}:{dead_letter.sequence}",
    }


def _id(given: str, project: str) -> str:
    """The original message's id, out of `<project>:<id>:<stream>:<seq>:<attempt>:dead`."""
    if project == UNROUTABLE_PROJECT:
        return given
    own = given.removeprefix(f"{project}:")
    parts = own.rsplit(":", 4)
    found = parts[0] if len(parts) == 5 and parts[4] == "dead" else own
    return found if names.is_key(found) else ""


def _place(subject: str, env: str, project: str) -> Place | None:
    """The queue that a subject names; None for another project's queue, for anyone may have written it."""
    words = subject.split(".")
    if len(words) != 6 or words[:2] != ["lanes", env] or words[3] != project or project == UNROUTABLE_PROJECT:
        return None
    partition, group = names.number(words[2]), names.number(words[4])
    return None if partition is None or group is None else Place(partition, group, words[5])


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode()}
