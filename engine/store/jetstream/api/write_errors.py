"""Translates nats-server's write errors, which quote system errors with the path of a file, into plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.ports import Unwritable
from evenlane.engine.store.jetstream.api import responses

if TYPE_CHECKING:
    from evenlane.engine.store.jetstream.api.values import PubAck

_DELETE_FAILED = 10057
_OFFLINE = (10118, 10194)
_DISABLED = (10039, 10076)
_SYSTEM = {
    "no space left on device": "no space left on its disk",
    "disk quota exceeded": "the quota of its disk is used up",
    "read-only file system": "its disk is read-only",
    "file too large": "a file has reached the size that its system allows",
    "permission denied": "it may not write its files",
    "operation not permitted": "it may not write its files",
    "input/output error": "its disk fails",
    "too many open files": "it has too many files open",
    "no such file or directory": "its files are gone",
}
_QUOTA = {
    10002: "the account's storage quota is used up",
    10023: "the storage that the server gives JetStream is used up",
    10047: "the storage that the server gives JetStream is used up",
}
_LONGEST = 120
NO_LEADER = Unwritable("it has no leader, as too few of its servers answer or can write")
SILENT = Unwritable("no server answers for it")


def of_system(text: str) -> str:
    """`write /data/.../1.blk: no space left on device` in plain words."""
    for theirs, ours in _SYSTEM.items():
        if theirs in text:
            return ours
    return text.rpartition(": ")[2].strip()[:_LONGEST] or "it doesn't say why"


def _is_write_error(text: str) -> bool:
    """Whether a refused delete is due to a write error. A missing message has the same error number, so an unknown text
    counts as a missing message.
    """
    return text.startswith("write ") or any(theirs in text for theirs in _SYSTEM)


def of_deletion(err_code: int, text: str) -> Unwritable | None:
    """The state of a stream, from the refusal to delete a message that doesn't exist. None: the stream can be written,
    or doesn't exist, which other requests detect.
    """
    if err_code == _DELETE_FAILED and _is_write_error(text):
        return Unwritable(f"the server can't write: {of_system(text)}", restart=True)
    if err_code in _OFFLINE:
        return Unwritable(f"the server has it offline: {text.partition(': ')[2] or text}"[:_LONGEST])
    if err_code in responses.LEADERLESS:
        return NO_LEADER
    if err_code in _DISABLED:
        return Unwritable("JetStream is switched off")
    return None


def of_refusal(ack: PubAck) -> Unwritable | None:
    """The state of a stream, from the refusal of a message. None: the refusal concerns only the message."""
    quota = _QUOTA.get(ack.error.err_code) if ack.error else None
    return Unwritable(f"the server takes no more: {quota}") if quota else None


def of_account(info: dict[str, object], room: int) -> Unwritable | None:
    """The state of all streams, from the account's figures: unwritable if there is no room for `room` bytes."""
    limits, used = info.get("limits"), info.get("storage")
    most = limits.get("max_storage") if isinstance(limits, dict) else None
    if not isinstance(most, int) or not isinstance(used, int) or most <= 0 or most - used >= room:
        return None
    return Unwritable(f"the server takes no more: {_QUOTA[10002]}")
