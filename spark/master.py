"""Checks that a standalone Spark master answers, before Java starts: Spark itself tries for more than a minute."""

from __future__ import annotations

import queue
import socket
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from evenlane.engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Callable

_SCHEME = "spark://"
_WITHIN_S = 5.0


class NoMaster(EvenlaneError):
    """No Spark master answers."""


def is_local(master: str | None) -> bool:
    """Whether Spark runs on this machine only."""
    return (master or "").startswith("local")


def check_master(master: str, within_s: float = _WITHIN_S) -> None:
    """Raise NoMaster if none of the hosts of `spark://HOST:PORT[,HOST:PORT]` accepts a connection within `within_s`
    seconds, ConfigError if it isn't of this form. Other kinds of masters aren't checked.
    """
    if not master.startswith(_SCHEME):
        return
    places = [_parse(each, master) for each in master.removeprefix(_SCHEME).split(",")]
    answers: queue.Queue[str | None] = queue.Queue()
    for place in places:  # at the same time, and names are resolved without a time limit
        threading.Thread(target=_connect, args=(place, within_s, answers.put), daemon=True).start()
    problems, end = [], time.monotonic() + within_s
    for _ in places:
        try:
            problem = answers.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            problems.append("no answer in time")
            break
        if problem is None:
            return
        problems.append(problem)
    raise NoMaster(f"no Spark master answers at {master}: {'; '.join(dict.fromkeys(problems))}")


def _parse(place: str, master: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.path:
        raise ConfigError(f"the Spark master {master!r} is not like spark://HOST:7077")
    return host, port


def _connect(place: tuple[str, int], within_s: float, answer: Callable[[str | None], None]) -> None:
    try:
        with socket.create_connection(place, timeout=within_s):
            answer(None)
    except OSError as error:
        answer("no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error))
