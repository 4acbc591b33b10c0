"""Clock, random numbers and log of the product, replaced by those of the simulation."""

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
from evenlane.engine.telemetry.tenants.sampler import QueueSampler, SamplerTuning

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from types import ModuleType

_PACKAGES = ("evenlane.",)
_REAL = clock.now_ns
_DATES = SimpleNamespace(now=lambda zone: datetime.fromtimestamp(_now.clock() / 1e9, zone))
_SPECIAL: dict[str, dict[str, object]] = {
    "evenlane.engine.cluster.leader_election": {"datetime": _DATES},
    "evenlane.engine.control.topics.accepted_writer": {"datetime": _DATES},
    # its questions to the machine are slow, and have other answers each time
    "evenlane.engine.base.process_stats": {
        "time": SimpleNamespace(process_time_ns=lambda: 0),
        "_version": lambda: "simulated",
        "os": SimpleNamespace(getpid=lambda: 1),
        "read_cpu_limit": lambda: 1.0,
    },
    # ten looks a second for handlers that hang take a tenth of a simulation's time
    "evenlane.engine.node.handlers.ack_deadline": {"_SWEEP_S": 1.0, "_LATE": 2_000_000_000},
    "evenlane.engine.runtime.services": {
        "QueueSampler": partial(QueueSampler, tuning=SamplerTuning(round_s=(10.0, 10.0)))
    },
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
    """The logger of each module. Lines below an error matter only to a trace."""

    def __getattr__(self, level: str) -> Callable[..., None]:
        if level not in _LEVELS:
            raise AttributeError(level)
        if _now.quiet and level in {"debug", "info", "warning"}:
            return _nothing
        return lambda event, **fields: _now.log(level, event, fields)


def _nothing(*_: object, **__: object) -> None:
    pass


def _replace_in(modules: Iterable[ModuleType], keep: Collection[str]) -> Iterator[tuple[ModuleType, str, object]]:
    """Replace, and yield what to restore: module, attribute, previous value."""
    replacements = {"now_ns": _now.now_ns, "_log": _Log()}
    for module in modules:
        special = {} if module.__name__ in keep else _SPECIAL.get(module.__name__, {})
        for attribute, replacement in special.items():
            yield module, attribute, vars(module)[attribute]
            setattr(module, attribute, replacement)
        for attribute, replacement in replacements.items():
            before = vars(module).get(attribute)
            if before is not None and (attribute == "_log" or before is _REAL):
                setattr(module, attribute, replacement)
                yield module, attribute, before


@contextmanager
def replaced(keep: Collection[str] = ()) -> Iterator[None]:
    """Replace clock, random numbers and log in all loaded modules of the product, and the attributes in `_SPECIAL`
    except those of modules in `keep`. Takes some milliseconds.
    """
    loaded = [module for name, module in sys.modules.items() if name.startswith(_PACKAGES)]
    undo = list(_replace_in(loaded, keep))
    chance, collects, frozen = random.getstate(), gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()  # garbage is collected between simulations: within one, it would come at random moments
    gc.collect()
    gc.freeze()  # existing objects needn't be scanned each time
    try:
        yield
    finally:
        for module, attribute, before in undo:
            setattr(module, attribute, before)
        random.setstate(chance)
        gc.collect()
        if not frozen:  # else the caller exempts its objects, too
            gc.unfreeze()
        if collects:
            gc.enable()


@contextmanager
def of(
    seed: int, clock_ns: Callable[[], int], log: Callable[[str, str, dict[str, Any]], None], quiet: bool
) -> Iterator[None]:
    """Within `replaced`: give the product this clock and log, and random numbers of this seed."""
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
