"""Why nats-server doesn't store, in words: it quotes its system's errors, with the path of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.ports import Unwritable

if TYPE_CHECKING:
    from evenlane.engine.store.jetstream.api.values import PubAck

_DELETE_FAILED = 10057
_OFFLINE = (10118, 10194)
_NO_LEADER = (10008, 10009)
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
    """`write /data/.../1.blk: no space left on device` in our words."""
    for theirs, ours in _SYSTEM.items():
        if theirs in text:
            return ours
    return text.rpartition(": ")[2].strip()[:_LONGEST] or "it doesn't say why"


def _is_write_error(text: str) -> bool:
    """The same number is for a message that isn't there. What isn't known counts as that."""
    return text.startswith("write ") or any(theirs in text for theirs in _SYSTEM)


def of_deletion(err_code: int, text: str) -> Unwritable | None:
    """What the refusal to delete a message that no stream has tells of the stream; None: it can be written, or it isn't
    there, which others find out.
    """
    if err_code == _DELETE_FAILED and _is_write_error(text):
        return Unwritable(f"the server can't write: {of_system(text)}", restart=True)
    if err_code in _OFFLINE:
        return Unwritable(f"the server has it offline: {text.partition(': ')[2] or text}"[:_LONGEST])
    if err_code in _NO_LEADER:
        return NO_LEADER
    if err_code in _DISABLED:
        return Unwritable("JetStream is switched off")
    return None


def of_refusal(ack: PubAck) -> Unwritable | None:
    """What the refusal of a message tells of its stream; None: it is the message's own matter."""
    quota = _QUOTA.get(ack.error.err_code) if ack.error else None
    return Unwritable(f"the server takes no more: {quota}") if quota else None


def of_account(info: dict[str, object], room: int) -> Unwritable | None:
    """What the account's figures tell of all its streams: whether there is no room for so many bytes."""
    limits, used = info.get("limits"), info.get("storage")
    most = limits.get("max_storage") if isinstance(limits, dict) else None
    if not isinstance(most, int) or not isinstance(used, int) or most <= 0 or most - used >= room:
        return None
    return Unwritable(f"the server takes no more: {_QUOTA[10002]}")
