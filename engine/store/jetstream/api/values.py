"""The responses of JetStream's API as values: a response is decoded as a whole, or refused.

This is the only place that knows their shape. `Connection.api_as` decodes them, and raises Disconnected for any other
shape, as for any response that isn't JetStream's: the caller retries.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

import msgspec

from evenlane.engine.core.wire.decode_error import UNREADABLE

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Sequence: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
_Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 63) - 1)]


def parse_time(text: str) -> int:
    """RFC 3339 with up to nine decimals, as unix ns. Raises ValueError."""
    whole, _, rest = text.rstrip("Z").partition(".")
    seconds = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return int(seconds) * 1_000_000_000 + (int(rest.ljust(9, "0")[:9]) if rest else 0)


def format_time(at: int) -> str:
    """Unix ns as RFC 3339 with nanoseconds."""
    whole = datetime.fromtimestamp(at // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{at % 1_000_000_000:09d}Z"


class _Config(msgspec.Struct):
    """The part of a stream's config that Evenlane reads. A change sends back the whole config."""

    name: str
    subjects: list[str] = []
    num_replicas: _Number = 1
    duplicate_window: _Number = 0
    max_age: _Number = 0
    max_msgs: _Limit = -1
    max_bytes: _Limit = -1
    max_msgs_per_subject: _Limit = -1
    metadata: dict[str, str] | None = None


class _Peer(msgspec.Struct):
    current: bool = False


class _RaftGroup(msgspec.Struct):
    """`replicas` are the followers: the leader isn't among them."""

    leader: str = ""
    replicas: list[_Peer] | None = None


class _State(msgspec.Struct):
    first_seq: _Number
    last_seq: _Number
    last_ts: str = ""
    messages: _Number = 0
    bytes: _Number = 0
    subjects: dict[str, _Number] | None = None

    @property
    def at(self) -> int:
        """The arrival time of the last message, unix ns; 0 if there never was one."""
        return max(0, parse_time(self.last_ts)) if self.last_seq else 0

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid time."""
        _ = self.at


class StreamInfo(msgspec.Struct):
    """`total` is the number of subjects, if pages of them were requested; `ts` is the server's time, "" if
    it isn't given.
    """

    config: dict[str, Any]
    created: str
    state: _State
    total: _Number = 0
    ts: str = ""
    cluster: _RaftGroup | None = None

    def __post_init__(self) -> None:
        """Raises msgspec.ValidationError, ValueError."""
        msgspec.convert(self.config, _Config)
        _ = self.now

    @property
    def name(self) -> str:
        return str(self.config["name"])

    @property
    def replicas(self) -> int:
        return int(self.config.get("num_replicas", 1))

    @property
    def current(self) -> int:
        """The number of servers that have all of the stream; 0 without a leader."""
        if self.cluster is None:
            return 1
        followers = sum(peer.current for peer in self.cluster.replicas or ())
        return followers + 1 if self.cluster.leader else 0

    @property
    def leader(self) -> str | None:
        return (self.cluster.leader if self.cluster else "") or None

    @property
    def now(self) -> int:
        """The server's time of the response, unix ns; 0 if it isn't given."""
        return parse_time(self.ts) if self.ts else 0


class StreamPage(msgspec.Struct):
    """A page of the account's streams. `entries` may have any shape: a stream that we can't read isn't ours."""

    total: _Number
    entries: list[Any] | None = msgspec.field(name="streams", default=None)
    missing: list[str] | None = None  # exist, but their leader doesn't answer

    @property
    def streams(self) -> list[StreamInfo]:
        """The streams that can be read."""
        read = (_read_stream(entry) for entry in self.entries or ())
        return [stream for stream in read if stream is not None]


def _read_stream(entry: Any) -> StreamInfo | None:
    try:
        return msgspec.convert(entry, StreamInfo)
    except UNREADABLE:
        return None


class _Delivered(msgspec.Struct):
    stream_seq: _Number = 0


class ConsumerInfo(msgspec.Struct):
    """A consumer that was just created."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[^\s.*>]+$")]  # it becomes part of subjects
    num_pending: _Number
    delivered: _Delivered = msgspec.field(default_factory=_Delivered)
    cluster: _RaftGroup | None = None

    @property
    def leader(self) -> str | None:
        return (self.cluster.leader if self.cluster else "") or None


class _Message(msgspec.Struct):
    subject: str
    seq: _Sequence
    time: str
    hdrs: bytes = b""
    data: bytes = b""

    @property
    def at(self) -> int:
        """Unix ns."""
        return parse_time(self.time)

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid time."""
        _ = self.at


class MessageAnswer(msgspec.Struct):
    message: _Message


class PubError(msgspec.Struct, gc=False):
    err_code: int = 0  # 0: without a number of JetStream's own
    description: str = "refused"
    code: int = 0  # HTTP-like


class PubAck(msgspec.Struct, gc=False):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: PubError | None = None
