"""Runs an application as a program of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

from evenlane.engine.base.config.settings import load
from evenlane.engine.base.log_setup import setup
from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.engine.runtime.engine import Engine
from evenlane.engine.runtime.node_process import ready_line, run_node
from evenlane.engine.runtime.process_end import exit_process, limit_end

if TYPE_CHECKING:
    from evenlane.engine.node.handlers.application import ApplicationFactory

_DONE, _FAILED, _WRONG_USE = 0, 1, 2


def run_application(app: ApplicationFactory, flags: dict[str, Any]) -> NoReturn:
    """Run a node with the application until SIGTERM or SIGINT, and exit: with 0 after a clean drain, 1 after a failure,
    2 for wrong use. Errors are one sentence on stderr.
    """
    limit_end()
    try:
        code = _DONE if _run(app, flags) else _FAILED
    except EvenlaneError as error:
        print(f"evenlane: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        code = _WRONG_USE if isinstance(error, ConfigError) else _FAILED
    exit_process(code)


def _run(app: ApplicationFactory, flags: dict[str, Any]) -> bool:
    settings = load({name: value for name, value in flags.items() if value is not None}).settings
    setup(settings.log_format, settings.log_level)
    is_ready = False

    def on_ready(partitions: int, generation: int) -> None:
        nonlocal is_ready
        if not is_ready:
            is_ready = True
            print(ready_line(engine.id, partitions, generation, [engine.http.address]), flush=True)  # noqa: T201

    engine = Engine(app, settings=settings, on_ready=on_ready)
    return run_node(engine)
