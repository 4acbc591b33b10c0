"""The number of examples of a property: a fixed set in each run. SOAK=20 runs many more, from a new seed; Hypothesis
then shrinks one that fails.
"""

import os

from hypothesis import HealthCheck, Phase, settings

_SOAK = int(os.environ.get("SOAK", "0"))
# Shrinking can outlast the timeout of a test, whose report then hides the failure.
_PHASES = tuple(Phase) if _SOAK else (Phase.explicit, Phase.generate)


def examples(count: int, steps: int = 50) -> settings:
    """`count` examples (of `steps` steps, for a state machine), or SOAK times as many."""
    return settings(
        max_examples=count * (_SOAK or 1),
        stateful_step_count=steps * (2 if _SOAK else 1),
        derandomize=not _SOAK,
        deadline=None,
        phases=_PHASES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
