"""Where the nodes of one command serve HTTP: from `http_port` on, a port for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.cli.run.lifeline import Ready

_LAST = 65_535


def http_ports(first: int | None, count: int) -> Sequence[int]:
    """Of `count` nodes; none if `first` is None, and 0 each (any free one) if it is 0. Raises ConfigError."""
    if not first:
        return [] if first is None else [0] * count
    if first + count - 1 > _LAST:
        raise ConfigError(
            f"--http-port {first} leaves no port for each of {count} processes: {_LAST - count + 1} is the highest"
        )
    return range(first, first + count)


def addresses(ready: Iterable[Ready]) -> str:
    """Where nodes serve, as the end of a line that says what is ready."""
    served = ",".join(each.http for each in ready if each.http is not None)
    return f" http={served}" if served else ""
