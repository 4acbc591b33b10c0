"""What Spark says of a failure, as one sentence: its own text is a page of two languages' tracebacks."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Iterator

_RAISED = re.compile(r"^(?:pyspark\S*: |\S*Exception: )?((?:\w+\.)*\w+): (.+)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"


class Failed(EvenlaneError):
    """A job of Spark's failed; the text says why."""


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Errors of Spark leave the block as Failed, with what was raised first, in this process or in a worker."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - it needn't be there where this is imported

    try:
        yield
    except PySparkException as error:
        raise Failed(sentence(str(error))) from error


def sentence(text: str) -> str:
    """What the last Python traceback in it ends with, without its class; else the first line."""
    if _TRACEBACK in text:
        # (frames are indented; after the error stands what Spark has to say of it)
        found = _RAISED.search(text.rpartition(_TRACEBACK)[2])
        if found is not None:
            return found[2].strip()
    return text.strip().partition("\n")[0]
