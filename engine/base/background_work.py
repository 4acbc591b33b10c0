"""Runs long work in a thread without disturbing the node's loop."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SWITCH_S = 0.0005  # longest time a thread keeps the interpreter while another waits for it; 5 ms by default


@contextmanager
def low_priority() -> Iterator[None]:
    """Yield the interpreter to the loop soon after it asks, and disable garbage collection meanwhile: the work makes
    thousands of objects without cycles, and a collection of all of the node's objects would block the loop for a tenth
    of a second.
    """
    collects, switch_s = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    if switch_s > _SWITCH_S:
        sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:  # of two concurrent uses, the second finds both already set, and leaves them to the first
        if switch_s > _SWITCH_S:
            sys.setswitchinterval(switch_s)
        if collects:
            gc.enable()
