"""The list of faults: how often a simulated script draws each, and what each may cost."""

from __future__ import annotations

from typing import NamedTuple


class FaultKind(NamedTuple):
    """One kind of fault, or of an event that only looks like one.

    `weight` is its share in the scripts of the simulation. The flags say what promise D allows after it.
    """

    name: str
    weight: int
    is_momentary: bool = False
    is_harmless: bool = False
    """Nothing may be handled twice after it: all work goes on, only later."""
    holds_up_settling: bool = False
    """Settling stalls while it lasts, so that another fault meanwhile hits more messages."""
    loses_answers: bool = False
    """A node learns only after `NO_ANSWER` ns that its request was lost."""
    hides_handoffs: bool = False
    """A new owner may not see in etcd, or not settle in time, what the previous owner says that it still handles."""


NO_ANSWER = 6_000_000_000

OF_A_NODE = (
    FaultKind("crash", 6, is_momentary=True),
    FaultKind("pause", 6, hides_handoffs=True),
    FaultKind("etcd cut", 5, hides_handoffs=True),
    FaultKind("etcd flaky", 2, hides_handoffs=True),
    FaultKind("lease starved", 3),
    FaultKind("nats cut", 5, holds_up_settling=True, loses_answers=True, hides_handoffs=True),
    FaultKind("nats flaky", 2, holds_up_settling=True, loses_answers=True, hides_handoffs=True),
    FaultKind("watches dropped", 3, is_momentary=True, is_harmless=True),
)
OF_ALL = (
    FaultKind("etcd silent", 3, hides_handoffs=True),
    FaultKind("etcd leader", 2, is_momentary=True, is_harmless=True),
    FaultKind("compaction", 2, is_momentary=True, is_harmless=True),
    FaultKind("second leader", 3, is_momentary=True, is_harmless=True),
    FaultKind("nats down", 3, holds_up_settling=True, loses_answers=True, hides_handoffs=True),
    FaultKind("acks late", 2, is_harmless=True, holds_up_settling=True, hides_handoffs=True),
    FaultKind("acks never", 2, holds_up_settling=True, loses_answers=True, hides_handoffs=True),
    FaultKind("copies refused", 1, holds_up_settling=True, hides_handoffs=True),
    FaultKind("lane replaced", 1, is_momentary=True),
    FaultKind("lane rolled back", 1, is_momentary=True),
    FaultKind("corrupt key", 3, is_momentary=True, is_harmless=True),
    FaultKind("clock jump", 1, is_momentary=True, is_harmless=True),
)
OF_ETCD_BACK = (FaultKind("etcd wiped", 1), FaultKind("etcd restored", 2))
"""etcd loses what was written last."""
GRACEFUL = (
    FaultKind("stop", 3, is_momentary=True, is_harmless=True),
    FaultKind("join", 2, is_momentary=True, is_harmless=True),
    FaultKind("purge", 1, is_momentary=True, is_harmless=True),
)
"""Events that are no faults."""

KINDS = {kind.name: kind for kind in (*OF_A_NODE, *OF_ALL, *OF_ETCD_BACK, *GRACEFUL)}
ETCD_BACK = frozenset(kind.name for kind in OF_ETCD_BACK)


def weights(kinds: tuple[FaultKind, ...]) -> dict[str, int]:
    """The kinds' names with their weights, in their order, which a seed's script depends on."""
    return {kind.name: kind.weight for kind in kinds}
