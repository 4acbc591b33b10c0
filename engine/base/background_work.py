"""Long work in a thread beside the node's loop."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SWITCH_S = 0.0005  # for which a thread may keep the interpreter while another wants it; by default 5 ms


@contextmanager
def unobtrusive() -> Iterator[None]:
    """The loop gets the interpreter soon after it asks for it; and while thousands of objects are made, none of them in
    a cycle, no garbage is looked for among all of the node's, which would hold the loop for a tenth of a second.
    """
    collects, switch_s = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    if switch_s > _SWITCH_S:
        sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:  # (who finds both as they are to be, as two work at once, leaves them to the other)
        if switch_s > _SWITCH_S:
            sys.setswitchinterval(switch_s)
        if collects:
            gc.enable()
