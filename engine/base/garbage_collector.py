"""Python's cyclic garbage collector, set for a process that holds many small, short-lived objects without cycles."""

import gc

_YOUNG, _MIDDLE, _OLD = 10_000, 100, 100


def tune_gc() -> None:
    """Leave out what is loaded already, and look at the rest less often: by default the collector takes a
    quarter of a node's time at full load (docs/adr/0005).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
