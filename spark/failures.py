"""Converts Spark's failures to one sentence: their own text is a page of tracebacks in two languages."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Iterator

_RAISED = re.compile(r"^(?:pyspark\S*: |\S*Exception: )?((?:\w+\.)*\w+): (.+)$", re.MULTILINE)
_THROWN = re.compile(r"^: (?:[\w$]+\.)+[\w$]+: (.+)$", re.MULTILINE)  # Py4J's format
_TRACEBACK = "Traceback (most recent call last)"


class Failed(EvenlaneError):
    """A Spark job failed; the text says why."""


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raise errors of Spark, Java, Polars and files as Failed, with the original error of this process or a worker."""
    from polars.exceptions import PolarsError  # noqa: PLC0415 - each may be missing
    from py4j.protocol import Py4JError, Py4JNetworkError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (Py4JNetworkError, ConnectionRefusedError) as error:
        raise Failed("Java has ended in the middle of its work: out of memory, or ended by somebody") from error
    except (PySparkException, Py4JError, PolarsError) as error:
        raise Failed(sentence(str(error))) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Failed(f"{where}{error.strerror or sentence(str(error))}") from error


def sentence(text: str) -> str:
    """Return the error at the end of the last Python traceback, without its class; otherwise the message of Java's
    first error, or the first line.
    """
    if _TRACEBACK in text:
        # frames are indented; Spark's own text follows the error
        found = _RAISED.search(text.rpartition(_TRACEBACK)[2])
        if found is not None:
            return found[2].strip()
    thrown = _THROWN.search(text)
    return thrown[1] if thrown is not None else text.strip().partition("\n")[0]
