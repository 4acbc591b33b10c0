"""Runs one node as a process: until a signal, with a watchdog, and with its errors as sentences."""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING

from evenlane.engine.errors import EvenlaneError
from evenlane.engine.runtime.run_loop import run_loop
from evenlane.engine.runtime.serve import serve
from evenlane.engine.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evenlane.engine.runtime.engine import Engine
    from evenlane.engine.runtime.serve import ProgressIndicator


def run_node(
    engine: Engine,
    *,
    joined: Callable[[], None] | None = None,
    draining: ProgressIndicator | None = None,
    on_stop: Callable[[], None] | None = None,
) -> bool:
    """Run a node until SIGTERM or SIGINT; return whether it ended clean. The arguments are those of `serve`. Raises
    EvenlaneError, also if a handler ends the event loop.
    """

    async def run_guarded() -> bool:
        with Watchdog(engine.settings.block_limit):
            return await serve(engine, joined, draining, on_stop)

    try:
        return run_loop(run_guarded())
    except (SystemExit, KeyboardInterrupt, CancelledError, RuntimeError) as error:
        cause = _of_handler(error)
        if not cause or (engine.is_stopping and isinstance(error, KeyboardInterrupt)):  # a second Ctrl-C
            raise
        raise EvenlaneError(f"node {engine.id} stops: {cause}") from error


def ready_line(node: str, partitions: int, generation: int, addresses: Iterable[str | None]) -> str:
    """The line that says that a node, or nodes, are ready. `addresses` are those that they serve, if any."""
    served = ",".join(address for address in addresses if address is not None)
    return f"ready node={node} partitions={partitions} generation={generation}{f' http={served}' if served else ''}"


def _of_handler(error: BaseException) -> str:
    """Describe how a handler made the event loop end with this error; empty if the cause was something else."""
    name = type(error).__name__
    if name == "RuntimeError":
        return "a handler stopped the event loop" if "Event loop stopped" in str(error) else ""
    if name == "CancelledError":
        return "a handler cancelled the tasks of the node"
    if name == "SystemExit":  # SystemExit in a handler itself is a failed attempt
        return "a task that a handler left behind raised SystemExit"
    return f"a handler, or a task that it left behind, raised {name}"
