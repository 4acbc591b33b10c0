"""The time until which the node may act as an owner."""

from __future__ import annotations

from evenlane.engine.base.clock import now_ns

_ALWAYS = 1 << 62


class LeaseTrust:
    """`until` is monotonic ns: from then on, no handler starts, and nothing is put or removed.

    The lease's keeper sets it, through `Node.trust`; every start of a handler reads it. A node without a lease, in a
    test or a simulation, is always trusted.
    """

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = _ALWAYS

    def is_held(self) -> bool:
        """Whether the node may act as an owner now."""
        return now_ns() < self.until

    def wait_reason(self, now: int) -> str | None:
        """The reason why no message of the node may start, if trust has lapsed: its partitions may belong
        to another node.
        """
        return "no_owner" if now >= self.until else None
