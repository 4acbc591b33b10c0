"""Messages of the history: a node's answer on `ask.<cluster>.history`, in JSON, compressed."""

from __future__ import annotations

import zlib

import msgspec

from evenlane.engine.core.wire.decode_error import UNREADABLE

_MOST_BYTES = 64 << 20  # of an answer: a thousand projects need 10 MB


class LabelColumns(msgspec.Struct, array_like=True, frozen=True):
    """A project. `figures` has a column each, see NodeHistory. `partitions` are those of its groups, whoever owns them;
    empty if the node knows no topic.
    """

    project: str
    figures: list[list[float | None]]
    partitions: list[int] = []


class Known(msgspec.Struct, array_like=True, frozen=True):
    """From when to when, both inclusive, the node knew the whole backlog of these partitions."""

    first: int
    last: int
    partitions: list[int]


class NodeHistory(msgspec.Struct, frozen=True):
    """A node's answer. Seconds are unix seconds by the store's clock; `now` is that clock in ns.

    Each column of `figures` is a list of one value for each second from `first` on, in the order of `names`; None is
    unknown. `totals` are those of all projects, also of those without a row.
    """

    node: str
    now: int
    first: int
    names: list[str]
    totals: list[list[float | None]]
    rows: list[LabelColumns] = []
    known: list[Known] = []


def subject(cluster: str) -> str:
    """Return the subject of history requests."""
    return f"ask.{cluster}.history"


def encode(history: NodeHistory) -> bytes:
    """Encode an answer: a line with the node, which a client reads without the rest, and the compressed answer."""
    return history.node.encode() + b"\n" + zlib.compress(msgspec.json.encode(history), 1)


def read_sender(body: bytes) -> str:
    """Return the node that an answer claims to be from. Raises ValueError."""
    return body.partition(b"\n")[0][:1_000].decode()


def decode(body: bytes) -> NodeHistory | None:
    """Decode an answer; None if it is none."""
    try:
        inflater = zlib.decompressobj()
        plain = inflater.decompress(body.partition(b"\n")[2], _MOST_BYTES)
        found = msgspec.json.decode(plain, type=NodeHistory) if inflater.eof else None
    except (zlib.error, *UNREADABLE):
        return None
    return found if found is not None and _is_even(found) else None


def _is_even(history: NodeHistory) -> bool:
    """Whether all columns have the same length, and there is one for each name."""
    columns = [history.totals, *(row.figures for row in history.rows)]
    seconds = {len(column) for each in columns for column in each}
    return len(seconds) == 1 and {len(each) for each in columns} == {len(history.names)}
