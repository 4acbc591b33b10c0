"""The values of an environment's keys: the nodes that are alive, the leader, the plans, and the owners.

Anyone with `etcdctl` can write them, so `decode` validates everything that is read.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias, TypeVar

import msgspec

MOST_BYTES = 1 << 20
FORMAT = 1
"""The newest format of records that this release reads, and the format that it writes. docs/reference/compatibility.md
says when it rises.
"""
SETTLE_LOG, ETCD_RECORDS = "settle_log", "records"
"""The kinds of what a node may be unable to read."""

_Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
# An epoch is a base plus a revision, and must fit a settle log.
_Base: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=60)]
_Mark: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 54)]


class RecordError(ValueError):
    """The value is not a valid record of this kind; the text says where and why."""


class NewerFormat(RecordError):
    """The record has a `format` that this release doesn't know."""

    def __init__(self, key: str, newer: int) -> None:
        self.format = newer
        super().__init__(
            f"{key} has format {newer}, and this release reads only {FORMAT}: run the release that wrote it, or a newer"
            " one; if no node of yours wrote it, delete the key"
        )


class Unreadable(NamedTuple):
    """What a node can't read of a partition: SETTLE_LOG or ETCD_RECORDS, and its format."""

    kind: str
    format: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Records of releases before the field have format 1. In every format, a record is an object with this field."""

    format: Annotated[int, msgspec.Meta(ge=1)] = FORMAT


class LoadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a node over the last half minute or so, as decisions about the number of nodes need it.

    `used` is the mean number of slots in use; `wanted` is the number that would be used if slots were free: within the
    quotas, and without what waits for other reasons. `handling` is the mean time of a handler, s. `blocked` counts
    waiting messages by those reasons that no further node would end, such as `quota`.
    """

    used: float = 0.0
    wanted: float = 0.0
    handling: float = 0.0
    blocked: dict[str, int] = {}


class NodeRecord(Record, frozen=True, kw_only=True):
    """`nodes/<id>`, under the node's lease. `cpu` is the process's share of the `cores` that it may use (1.0: all of
    them); a record of an older release has no `cores`, and its `cpu` is a share of one core. `at` is in unix seconds.
    `passed_over` is the number of invalid values that the node has found in etcd. `troubles` are clauses by kind about
    what keeps the node from its work; each follows the node's name ("is ...", "has ..."). `handlers` are its routes as
    text of bounded length, empty in a record of an older release. `zone` is empty if it isn't set. `slots` is the
    number of its slots; `load` is None until it is known, and in a record of an older release. `scaling` is the node's
    setting of that name.

    `reads` has the newest format that the node reads, by kind of `Unreadable`, 1 if left out; `unreadable` has the
    partitions that it couldn't take over.

    A node without `store` (it has no connection to NATS), or one that is `leaving`, gets no partitions.
    """

    host: str = ""
    pid: int = 0
    version: str = ""
    http: str | None = None
    cpu: float = 0.0
    cores: float = 0.0
    projects: int = 0
    in_flight: int = 0
    at: float = 0.0
    store: bool = True
    leaving: bool = False
    passed_over: int = 0
    troubles: dict[str, str] = {}
    handlers: str = ""
    zone: str = ""
    slots: int = 0
    load: LoadRecord | None = None
    scaling: str = "off"
    reads: dict[str, int] = {}
    unreadable: dict[int, Unreadable] = {}

    @property
    def is_fit(self) -> bool:
        return self.store and not self.leaving


class LeaderRecord(Record, frozen=True, kw_only=True):
    """`leader`, under the leader's lease; `since` in RFC 3339."""

    id: str
    since: str = ""


class PlanRecord(Record, frozen=True, kw_only=True):
    """`plan/<id>`, written by the leader: the partitions that this node must own, as of this generation."""

    generation: int
    partitions: list[int]


class GenerationRecord(Record, frozen=True, kw_only=True):
    """`generation`, written by the leader with each plan: the newest generation, so that none is ever reused."""

    generation: int
    strategy: str = ""


class PastOwner(NamedTuple):
    """A previous owner of a partition: its epoch, and the lease under which it was claimed. After a rollback, etcd may
    assign the same epoch to another owner, but never the same lease id.
    """

    epoch: _Whole
    lease: _Whole


class OwnerRecord(Record, frozen=True, kw_only=True):
    """`owners/<partition>`, under the owner's lease. The owner's epoch is `base` plus the key's create-revision;
    `epoch` repeats it once the owner serves the partition, and is 0 until then. `before` as in `EpochRecord`.
    """

    id: str
    epoch: int = 0
    base: _Base = 0
    before: list[PastOwner] = []


class EpochRecord(Record, frozen=True, kw_only=True):
    """`epochs/<partition>`, under no lease, put in the transaction that creates an owner key. The last owner's epoch is
    `base` plus this key's mod-revision, and it claimed under `lease`; 0: there was no claim since the base was raised.
    `before` has some earlier owners, latest first: an owner that gives up its claim leaves the settle log of one of
    these.
    """

    base: _Base = 0
    lease: _Whole = 0
    before: list[PastOwner] = []


class DoneRecord(Record, frozen=True, kw_only=True):
    """`done/<id>`, under the node's lease: the newest generation that the node has carried out."""

    generation: int


class SeenRecord(Record, frozen=True, kw_only=True):
    """`seen/<id>`, under the node's lease: the revision of the newest registry of subscriptions that the node follows.
    It removes nothing more by an older one, and all its settle logs say so.
    """

    revision: _Whole


class HeldLane(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of a released partition: `running` are messages whose handlers still run under the old owner; `done`
    are those that have ended since, or whose settling wasn't durable yet; `failed` are those whose attempt has failed
    since and that stay in their lane, each with its attempt mark. The stream is identified by its creation time, the
    highest sequence seen and the arrival time of that message. `reset` (unix ns) is the subscription's last reset that
    the old owner followed; unset: none.
    """

    created: str
    high: int = 0
    high_at: int = 0
    running: list[_Whole] = []
    done: list[_Whole] = []
    failed: list[tuple[_Whole, _Mark]] = []
    reset: _Whole | msgspec.UnsetType = msgspec.UNSET


class BlockedLane(msgspec.Struct, frozen=True, kw_only=True):
    """One stream's messages whose handler (one for all of them) blocked its node's event loop for `seconds`, until the
    process ended itself. The stream is identified by its creation time.
    """

    created: str
    sequences: list[_Whole]
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class HeldRecord(Record, frozen=True, kw_only=True):
    """`held/<partition>/<epoch>`, written by the owner of that epoch when it releases the partition; by kind of stream
    (`lanes`, `later`). Under the owner's lease as long as any handler runs.

    `lent` are projects whose part in this partition other nodes may still use, each with the time left, s. `blocked`
    names the messages whose handler blocked the owner until its process ended itself; no handler runs any more then.
    `lease` is the lease under which the owner claimed the partition, 0 in a record of an older release.
    """

    id: str
    epoch: _Whole = 0
    lease: _Whole = 0
    lanes: dict[str, HeldLane] = {}
    lent: dict[str, _Seconds] = {}
    blocked: dict[str, BlockedLane] = {}

    @property
    def is_running(self) -> bool:
        return any(lane.running for lane in self.lanes.values())


R = TypeVar("R", bound=Record)

_head = msgspec.json.Decoder(Record)


def encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def decode(kind: type[R], key: str, raw: bytes) -> R:
    """Raises RecordError, which names the key; NewerFormat for a format that this release doesn't know."""
    if len(raw) > MOST_BYTES:
        raise RecordError(f"{key} holds {len(raw)} bytes, which isn't a record")
    try:
        record = msgspec.json.decode(raw, type=kind)
    except _INVALID as error:
        if (newer := _format_of(raw)) > FORMAT:
            raise NewerFormat(key, newer) from None
        raise RecordError(f"{key} is not valid: {error}") from error
    if record.format > FORMAT:
        raise NewerFormat(key, record.format)
    return record


_INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _format_of(raw: bytes) -> int:
    """The format that the bytes claim; 0 if they aren't a record of any format."""
    try:
        return _head.decode(raw).format
    except _INVALID:
        return 0
