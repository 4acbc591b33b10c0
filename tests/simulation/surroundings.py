"""What the product takes from its surroundings, from the simulation instead: clock, chance and log."""

from __future__ import annotations

import gc
import random
import sys
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from evenlane.engine.base import clock
from evenlane.engine.telemetry.tenants.sampler import QueueSampler, Tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

_PACKAGES = ("evenlane.",)
_REAL = clock.now_ns
_DATES = SimpleNamespace(now=lambda zone: datetime.fromtimestamp(_now.clock() / 1e9, zone))
_SPECIAL: dict[str, dict[str, object]] = {
    "evenlane.engine.cluster.leader_election": {"datetime": _DATES},
    "evenlane.engine.control.topics.accepted_writer": {"datetime": _DATES},
    # what it asks the machine is slow, and never the same
    "evenlane.engine.base.process_stats": {
        "time": SimpleNamespace(process_time_ns=lambda: 0),
        "_version": lambda: "simulated",
    },
    # looking ten times a second for handlers that hang costs a tenth of a life
    "evenlane.engine.node.handlers.ack_deadline": {"_SWEEP_S": 1.0, "_LATE": 2_000_000_000},
    "evenlane.engine.runtime.services": {"QueueSampler": partial(QueueSampler, tuning=Tuning(round_s=(10.0, 10.0)))},
    "evenlane.engine.node.handlers.in_flight_gate": {"token_hex": lambda size: random.randbytes(size).hex()},
}
_LEVELS = ("debug", "info", "warning", "error", "exception")

_COLLECT_EVERY = 10  # simulations


class _Surroundings:
    """The clock and the log of the simulation that runs now."""

    def __init__(self) -> None:
        self.clock: Callable[[], int] = clock.now_ns
        self.log: Callable[[str, str, dict[str, Any]], None] = lambda *_: None
        self.quiet = True
        self.runs = 0

    def now_ns(self) -> int:
        return self.clock()


_now = _Surroundings()


class _Log:
    """Stands for each module's structlog logger. What is logged below a warning is only of interest to a trace."""

    def __getattr__(self, level: str) -> Callable[..., None]:
        if level not in _LEVELS:
            raise AttributeError(level)
        if _now.quiet and level in {"debug", "info", "warning"}:
            return _nothing
        return lambda event, **fields: _now.log(level, event, fields)


def _nothing(*_: object, **__: object) -> None:
    pass


def _replace_in(modules: Iterable[ModuleType]) -> Iterator[tuple[ModuleType, str, object]]:
    """What stood where before."""
    replacements = {"now_ns": _now.now_ns, "_log": _Log()}
    for module in modules:
        for attribute, replacement in _SPECIAL.get(module.__name__, {}).items():
            yield module, attribute, vars(module)[attribute]
            setattr(module, attribute, replacement)
        for attribute, replacement in replacements.items():
            before = vars(module).get(attribute)
            if before is not None and (attribute == "_log" or before is _REAL):
                setattr(module, attribute, replacement)
                yield module, attribute, before


@contextmanager
def replaced() -> Iterator[None]:
    """All loaded modules of the product go by the simulation. Costs some milliseconds."""
    undo = list(_replace_in(module for name, module in list(sys.modules.items()) if name.startswith(_PACKAGES)))
    chance, collects = random.getstate(), gc.isenabled()
    gc.disable()  # garbage is collected between simulations: within one, it would come at odd moments
    gc.freeze()  # what is there now needn't be looked through each time
    try:
        yield
    finally:
        for module, attribute, before in undo:
            setattr(module, attribute, before)
        random.setstate(chance)
        gc.unfreeze()
        if collects:
            gc.enable()


@contextmanager
def of(
    seed: int, clock_ns: Callable[[], int], log: Callable[[str, str, dict[str, Any]], None], quiet: bool
) -> Iterator[None]:
    """Within `replaced`: the product reads this clock and log, and draws its random numbers from this seed."""
    before = (_now.clock, _now.log, _now.quiet)
    _now.clock, _now.log, _now.quiet = clock_ns, log, quiet
    random.seed(seed)
    try:
        yield
    finally:
        _now.clock, _now.log, _now.quiet = before
        _now.runs += 1
        if _now.runs % _COLLECT_EVERY == 0:
            gc.collect()
