"""The values under the keys of an environment: who is alive, who leads, what is planned, who owns what.

Anyone with `etcdctl` can write them, so what is read is checked: `decode` takes nothing for granted.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias, TypeVar

import msgspec

MOST_BYTES = 1 << 20

_Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
# Any epoch is a base and a revision, and must go into a settle log.
_Base: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=60)]
_Mark: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 54)]


class RecordError(ValueError):
    """The value is no record of this kind; the text says where and why."""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes/<id>`, under the node's lease. `cpu` is of one core (1.0: all of it), `at` unix seconds; `passed_over`
    counts the values in etcd that it has found not to be valid. `troubles` are sentences by kind about what keeps the
    node from its work; each goes on from the node's name ("is ...", "has ...").

    A node without `store` (it has no connection to NATS) or that is `leaving` gets no partitions.
    """

    host: str = ""
    pid: int = 0
    version: str = ""
    http: str | None = None
    cpu: float = 0.0
    projects: int = 0
    in_flight: int = 0
    at: float = 0.0
    store: bool = True
    leaving: bool = False
    passed_over: int = 0
    troubles: dict[str, str] = {}

    @property
    def fit(self) -> bool:
        return self.store and not self.leaving


class LeaderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`leader`, under the leader's lease; `since` in RFC 3339."""

    id: str
    since: str = ""


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`plan/<id>`, written by the leader: what this node is to own, as of this generation."""

    generation: int
    partitions: list[int]


class GenerationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`generation`, written by the leader with each plan: the newest, so that none is ever used twice."""

    generation: int
    strategy: str = ""


class PastOwner(NamedTuple):
    """Who has owned a partition: its epoch, and the lease under which it was claimed. An etcd that goes back may give
    an epoch to another owner, too; the id of a lease it never gives twice.
    """

    epoch: _Whole
    lease: _Whole


class OwnerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`owners/<partition>`, under the owner's lease. The owner's epoch is `base` plus the key's create-revision;
    `epoch` says the same once the owner serves the partition, and is 0 until then. `before` as in `EpochRecord`.
    """

    id: str
    epoch: int = 0
    base: _Base = 0
    before: list[PastOwner] = []


class EpochRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`epochs/<partition>`, put in the transaction that makes an owner key, and under no lease. The last owner's epoch
    is `base` plus this key's mod-revision, and it has claimed under `lease`: 0 if nobody has since the base was raised.
    `before` are some owners before it, the latest first: an owner that gives its claim up again leaves a settle log
    of one of these.
    """

    base: _Base = 0
    lease: _Whole = 0
    before: list[PastOwner] = []


class DoneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`done/<id>`, under the node's lease: the newest generation that it has carried out."""

    generation: int


class HeldLane(msgspec.Struct, frozen=True, kw_only=True):
    """Of one stream of a released partition: sequences whose handlers still run under the old owner, and those that
    have ended since, or whose settle wasn't durable yet; `failed` are those whose attempt has failed since and that
    stay where they are, with what is known of them, an integer of the engine's own. The stream is known by its creation
    time, the highest sequence seen and that message's time of arrival.
    """

    created: str
    high: int = 0
    high_at: int = 0
    running: list[_Whole] = []
    done: list[_Whole] = []
    failed: list[tuple[_Whole, _Mark]] = []


class BlockedLane(msgspec.Struct, frozen=True, kw_only=True):
    """Of one stream: the sequences whose handler, one for all of them, blocked its node's event loop for so many
    `seconds` that the process ended itself. The stream is known by its creation time.
    """

    created: str
    sequences: list[_Whole]
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class HeldRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`held/<partition>/<epoch>`, written by the owner of that epoch when it releases the partition. By kind of
    stream (`lanes`, `later`). Under the owner's lease as long as anything runs. `lent` are projects whose part in
    this partition other nodes may use for so many seconds more. An owner that a handler `blocked` until its process
    ended itself says which; then nothing runs any more. `lease` is the one under which the owner claimed the partition,
    0 in a record of an older release.
    """

    id: str
    epoch: _Whole = 0
    lease: _Whole = 0
    lanes: dict[str, HeldLane] = {}
    lent: dict[str, _Seconds] = {}
    blocked: dict[str, BlockedLane] = {}

    @property
    def running(self) -> bool:
        return any(lane.running for lane in self.lanes.values())


R = TypeVar("R", bound=msgspec.Struct)


def encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def decode(kind: type[R], key: str, raw: bytes) -> R:
    """Raises RecordError, which names the key."""
    if len(raw) > MOST_BYTES:
        raise RecordError(f"{key} holds {len(raw)} bytes, which is no record")
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{key} is not valid: {error}") from error
