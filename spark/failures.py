"""What Spark says of a failure, as one sentence: its own text is a page of two languages' tracebacks."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Iterator

_RAISED = re.compile(r"^(?:pyspark\S*: |\S*Exception: )?((?:\w+\.)*\w+): (.+)$", re.MULTILINE)
_THROWN = re.compile(r"^: (?:[\w$]+\.)+[\w$]+: (.+)$", re.MULTILINE)  # as Py4J tells of it
_TRACEBACK = "Traceback (most recent call last)"


class Failed(EvenlaneError):
    """A job of Spark's failed; the text says why."""


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Errors of Spark and Java leave the block as Failed, with what was raised first, in this process or a worker."""
    from py4j.protocol import Py4JError, Py4JNetworkError  # noqa: PLC0415 - neither need be there
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (Py4JNetworkError, ConnectionRefusedError) as error:
        raise Failed("Java has ended in the middle of its work: out of memory, or ended by somebody") from error
    except (PySparkException, Py4JError) as error:
        raise Failed(sentence(str(error))) from error


def sentence(text: str) -> str:
    """What the last Python traceback in it ends with, without its class; else what Java's first error says, or the
    first line.
    """
    if _TRACEBACK in text:
        # (frames are indented; after the error stands what Spark has to say of it)
        found = _RAISED.search(text.rpartition(_TRACEBACK)[2])
        if found is not None:
            return found[2].strip()
    thrown = _THROWN.search(text)
    return thrown[1] if thrown is not None else text.strip().partition("\n")[0]
