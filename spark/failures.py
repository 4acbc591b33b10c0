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
    """The last line of the last Python traceback in it without its class, else the first line."""
    if _TRACEBACK in text:
        raised = text.rpartition(_TRACEBACK)[2].partition("\n\n")[0].partition("\n\tat ")[0]
        found = _RAISED.findall(raised)
        if found:
            return str(found[-1][1]).strip()
    return text.strip().partition("\n")[0]
