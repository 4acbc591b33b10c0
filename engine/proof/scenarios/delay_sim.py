"""`delay` without servers: the index of delayed messages alone, on a clock that we turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.queue.delay_heap import DelayHeap
from evenlane.engine.proof.scenarios.arrivals import MILLISECOND, SECOND, stream_of
from evenlane.engine.proof.scenarios.delay_figures import spread

if TYPE_CHECKING:
    from evenlane.engine.proof.scenarios.figures import Figures
    from evenlane.engine.proof.scenarios.scenario import Tell

_COUNT, _SUBJECTS = 1_000_000, 300
_SPAN_NS = 3_600 * SECOND
_MOST = 1_000  # released in one step, as the node does


def by_heap(seed: int, tell: Tell, count: int = _COUNT) -> Figures:
    """The product: looked at whenever it says that something is due."""
    rng, index = stream_of(seed, "sim"), DelayHeap()
    dues = [rng.randrange(_SPAN_NS) for _ in range(count)]
    for sequence, due in enumerate(dues, 1):
        index.add(b"%d" % (sequence % _SUBJECTS), sequence, due)
    late: list[float] = []
    tell("delay: one after another", 0.3)
    while (now := index.next_due()) is not None:
        for _, sequence in index.release(now, _MOST):
            late.append((now - dues[sequence - 1]) / MILLISECOND)
    return _figures(late, count)


def by_wheel(seed: int, count: int = _COUNT) -> Figures:
    """The control: what is due in a second is looked for once, at its end."""
    rng = stream_of(seed, "sim")
    dues = (rng.randrange(_SPAN_NS) for _ in range(count))
    return _figures([(-(-due // SECOND) * SECOND - due) / MILLISECOND for due in dues], count)


def _figures(late: list[float], count: int) -> Figures:
    late.sort()
    return {
        **spread(late, "lateness"),
        "early": sum(each < 0 for each in late),
        "put": count,
        "released": len(late),
    }
