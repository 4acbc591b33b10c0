"""Messages between nodes and the leader about quota shares, on core NATS: `shares.<cluster>.*`.

Parts are fractions of the whole topic. `epoch` and `number` identify the leader and its round.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

import msgspec

from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.quota.lending.parts import Loan, NodeLoans, Part, PartDemand  # noqa: TC001 - msgspec looks at them

Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=60)]
T = TypeVar("T")

# The tags are on the wire: they stay, whatever the classes are called.

# How fast shares move between nodes, in seconds. The simulator uses the same times.
EVERY_S = 1.0
"""Between two looks of a node, and between two rounds of the leader."""
SOON_S = 0.25
"""From a round to the next, if a topic has newly become short, or is short under new rules."""
CHANGED_S = 0.05
"""From a change of a topic until a node checks whether it is short: it may have lent what it needs now."""
DURATION_S = 3.0
"""Duration of a loan."""


class Shortage(msgspec.Struct, tag="Short"):
    """Node to leader: more messages of these topics wait than the node's part allows; `anew` if their rules are new."""

    node: str
    projects: list[str]
    anew: bool = False


class ShareRequest(msgspec.Struct, tag="Ask"):
    """Leader to all nodes: report your own part of these topics, and the part that you want."""

    epoch: Epoch
    number: int
    projects: list[str]


class _OfNode(msgspec.Struct):
    """A message to or from one node, in a round."""

    node: str
    epoch: Epoch
    number: int


class ShareReport(_OfNode, tag="Report"):
    """A node's answer; topics of which it has nothing are left out."""

    states: dict[str, PartDemand]


class LendOrder(_OfNode, tag="Lend"):
    """Leader to a node: for each topic, leave the part `lend` unused for `seconds`, and keep at most the part `keep` of
    what you borrowed.
    """

    seconds: Seconds
    loans: dict[str, Loan]


class ShareConfirmation(_OfNode, tag="Confirm"):
    """A node's answer: the parts that it lends and borrows from now on."""

    standings: dict[str, NodeLoans]


class BorrowGrant(_OfNode, tag="Grant"):
    """Leader to a node: borrow these parts; your promises for `freed` from before this round are cancelled."""

    seconds: Seconds
    parts: dict[str, Part]
    freed: list[str]


ForLeader: TypeAlias = Shortage | ShareReport | ShareConfirmation
Asked: TypeAlias = ShareRequest | LendOrder | BorrowGrant

_for_leader: msgspec.json.Decoder[ForLeader] = msgspec.json.Decoder(ForLeader)
_asked: msgspec.json.Decoder[Asked] = msgspec.json.Decoder(Asked)


def to_leader(cluster: str) -> str:
    return f"shares.{cluster}.told"


def to_all(cluster: str) -> str:
    return f"shares.{cluster}.asked"


def to_node(cluster: str, node: str) -> str:
    return f"shares.{cluster}.node.{node.replace('.', '_')}"


def decode_for_leader(body: bytes) -> ForLeader | None:
    """None for bytes that no node has written."""
    return _decode(_for_leader, body)


def decode_request(body: bytes) -> Asked | None:
    """None for bytes that no leader has written."""
    return _decode(_asked, body)


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T | None:
    try:
        return decoder.decode(body)
    except UNREADABLE:
        return None
