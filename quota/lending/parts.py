"""The parts of a topic's quota that nodes need, lend and borrow, as they are written in messages."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

import msgspec

ROUNDING = 1e-9
"""The tolerance when sums of parts are compared."""

Part: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1 + ROUNDING)]
"""A fraction of a topic, as accepted from outside."""


class PartDemand(NamedTuple):
    """A node's own part of a topic, and the part that it could use."""

    own: Part
    want: Part


class Loan(NamedTuple):
    """The part of its own that a node must leave unused, and the most that it may keep of what it borrowed."""

    lend: Part
    keep: Part


class NodeLoans(NamedTuple):
    """The parts that a node has confirmed."""

    lent: Part
    borrowed: Part
