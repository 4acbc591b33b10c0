"""Reads dead letters, and makes the message that replays one. Pure; times are unix ns."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.base.durations import format_instant
from evenlane.engine.core.message.copies import UNROUTABLE_PROJECT
from evenlane.engine.core.message.replays import NotReplayable, Place, make_replay
from evenlane.engine.core.ports import Stored
from evenlane.engine.core.wire import header_values
from evenlane.engine.core.wire import headers as h

if TYPE_CHECKING:
    from evenlane.engine.core.message.copies import Copy
    from evenlane.engine.core.ports import ClusterLayout, Head
    from evenlane.quota.topics.topic import Accepted


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
    """The message for another first attempt: see `make_replay`. Raises NotReplayable."""
    place = dead_letter.place
    if place is None:
        raise NotReplayable(
            f"it doesn't say which queue of {dead_letter.project} it came from, but {dead_letter.subject!r}"
        )
    origin = names.dead_stream(cluster), dead_letter.attempts
    return make_replay(dead_letter, place, origin, cluster, topic, cluster_config, now)


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
