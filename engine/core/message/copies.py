"""Makes copies of a message, for a later attempt or for the dead letters. Pure.

A copy has an id of its own, `<project>:<id>:<stream>:<seq>:<attempt>`: under the original's id the server would take it
for a duplicate and drop it, and the original would then be settled. If the subscription was reset, the attempt is
followed by the time of that: `<attempt>.<reset>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.core.wire import headers as h

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message

ROOM = 8 << 10  # bytes of headers that a copy may need in addition to those of the original
_HOUR = 3_600_000_000_000
_LONGEST_TEXT = 512
UNROUTABLE_PROJECT = "_stray"  # no project has such a name


class Copy(NamedTuple):
    subject: str
    headers: bytes
    body: bytes


def room(max_payload: int) -> int:
    """The size (bytes) below the store's limit that a put must leave free, so that its copies are accepted, too."""
    return min(ROOM, max_payload // 8)


def retry(message: Message, cluster: str, due: int) -> Copy:
    """The copy for the next attempt, due at `due` (unix ns by the store's clock). The copy of a message that was
    recorded in flight is recorded, too; otherwise each copy of a killer would cause a death that isn't counted.
    """
    headers = _base(message)
    headers[h.ATTEMPT] = str(message.attempt + 1)
    if message.recorded:
        headers[h.RECORDED] = "1"
    headers[h.DUE] = str(due)
    subject = names.retry_subject(
        cluster, message.partition, message.project, message.group, message.priority, due // _HOUR
    )
    return Copy(subject, h.encode(headers), message.entry[4])


def dead_letter(message: Message, cluster: str, reason: str, error: str) -> Copy:
    """The dead letter of a message: with reason, error, attempts, and the queue that it came from."""
    headers = _base(message)
    headers[h.ATTEMPT] = str(message.attempt)
    headers[h.REASON] = one_line(reason)
    headers[h.ERROR] = one_line(error)
    headers[h.SUBJECT] = names.lane_subject(
        names.env_of(cluster), message.partition, message.project, message.group, message.priority
    )
    headers.pop(h.DUE, None)
    headers.pop(h.RECORDED, None)
    headers[h.ID] += ":dead"
    return Copy(names.dead_subject(cluster, message.project), h.encode(headers), message.entry[4])


def unroutable(
    subject: str, stream: str, sequence: int, at: int, block: bytes, body: bytes, cluster: str, reason: str
) -> Copy:
    """The dead letter of an unroutable message, which is thus neither dropped nor left in the way."""
    headers = {name: one_line(text) for name, text in h.select_carried(h.decode_user(block)).items()}
    headers |= {
        h.ID: f"{UNROUTABLE_PROJECT}:{stream}:{sequence}:{at}",
        h.ORIGIN: f"{stream}:{sequence}",
        h.REASON: one_line(reason),
        h.SUBJECT: one_line(subject),
    }
    return Copy(names.dead_subject(cluster, UNROUTABLE_PROJECT), h.encode(headers), body)


def one_line(text: str) -> str:
    return " ".join(text.encode("utf-8", "replace").decode().split())[:_LONGEST_TEXT]


def _base(message: Message) -> dict[str, str]:
    headers = h.select_carried(h.decode(message.raw_headers))
    if message.key is None:
        headers.pop(h.KEY, None)
    reset = message.lane.log.reset  # since then, the same attempt may fail once more
    attempt = f"{message.attempt}.{reset}" if reset else message.attempt
    headers[h.ID] = f"{message.project}:{message.id}:{message.stream}:{message.sequence}:{attempt}"
    headers[h.PUT] = str(message.put_ns)
    headers[h.ORIGIN] = f"{message.stream}:{message.sequence}"
    return headers
