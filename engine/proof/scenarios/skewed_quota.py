"""`skewed-quota`: a topic with almost all of its keys in one of its ten groups. Then a topic with almost all of its
keys on one of three nodes, each of them in turn.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

from evenlane.engine.errors import ConfigError
from evenlane.engine.proof.arms import Arm, product, round_robin
from evenlane.engine.proof.figures import dwell, worst_window
from evenlane.engine.proof.load import arrivals as a
from evenlane.engine.proof.load.load import Arrival, Load, config_for, tenant
from evenlane.engine.proof.report import Bar
from evenlane.engine.proof.scenarios.trace_scenario import TraceScenario

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterator

    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.load.placement import Placement
    from evenlane.engine.proof.load.trace import Trace
    from evenlane.engine.proof.scenario import Arms, Scenario

_NAME = "acme"
_UNTIL = 60  # s
_SERVICE = 45 * a.MILLISECOND

_QPS, _GROUPS, _OFFERED = 100, 10, 95
_HOT_SHARE = 0.8

NODES = 3
_WHOLE_QPS, _WHOLE_OFFERED = 300, 285
_SKEW = (0.80, 0.15, 0.05)  # of the arrivals, per node
_TURN = 20  # s, after which it is the next node's turn to have most
_WHOLE: dict[str, Any] = {"qps": _WHOLE_QPS, "groups": 12, "spread": 12}
SHARED, STATIC = "3 nodes", "3 nodes, each its part"
_BEYOND = 450  # msg/s
SHARED_BEYOND, WHOLE_BEYOND = "3 nodes, 450/s", "3 nodes, 450/s, each the whole quota"


class SkewedQuota(TraceScenario):
    name = "skewed-quota"
    about = "a topic at 0.95 of its quota: 80 % of it in one of ten groups; then 80 % of it on one of 3 nodes, in turn"
    broker_rounds = 1
    together = True
    sim_notes = (
        "over 3 nodes: 300 QPS; of what comes 80, 15 and 5 % come to the three, which change places every 20 s",
    )

    def over(self, nodes: int) -> Scenario:
        if nodes != NODES:
            raise ConfigError(f"--nodes of {self.name} can only be {NODES}, and needn't be said")
        return self

    def arms(self, seed: int) -> dict[str, Arm]:
        load = self._load(seed)
        split = load.with_spec(_NAME, qps=_QPS, groups=_GROUPS, borrow=False)
        read = _reader(_WHOLE_QPS)
        shared, beyond = (
            Arm(self._load_over_nodes(seed, offered), product, read, nodes=NODES, aim=aim)
            for offered in (_WHOLE_OFFERED, _BEYOND)
        )
        return {
            "borrowing": Arm(load, product, _reader(_QPS)),
            "each group its tenth": Arm(split, product, _reader(_QPS)),
            "no quota": Arm(load, round_robin, _reader(_QPS)),
            SHARED: shared,
            STATIC: replace(shared, quotas="static"),
            SHARED_BEYOND: beyond,
            WHOLE_BEYOND: replace(beyond, quotas="whole"),
        }

    def _load(self, seed: int) -> Load:
        rng = a.stream_of(seed, "skewed")
        shares = [_HOT_SHARE, *((1 - _HOT_SHARE) * share for share in a.zipf(_GROUPS - 1))]
        groups = a.chooser(rng, shares)
        come = (Arrival(at, 0, next(groups), 1, _SERVICE) for at in a.poisson(rng, _OFFERED, 0, self.ns(_UNTIL)))
        return Load.of([tenant(_NAME, qps=_QPS, groups=_GROUPS)], come, self.ns(_UNTIL))

    def _load_over_nodes(self, seed: int, offered: float) -> Load:
        """The group says for which node a message is meant, until `aim` knows where groups are."""
        cluster_config, rng = config_for(NODES), a.stream_of(seed, "skewed", "nodes", offered)
        ranks, turn = a.chooser(rng, _SKEW), self.ns(_TURN)

        def come() -> Iterator[Arrival]:
            for at in a.poisson(rng, offered, 0, self.ns(_UNTIL)):
                yield Arrival(at, 0, (next(ranks) + at // turn) % NODES, 1, _SERVICE)

        return Load.of([tenant(_NAME, cluster_config, **_WHOLE)], come(), self.ns(_UNTIL), cluster_config)

    def sim_bars(self, figures: Arms) -> list[Bar]:
        product_, split, free = (figures[arm] for arm in ("borrowing", "each group its tenth", "no quota"))
        shared, static, beyond, whole = (figures[arm] for arm in (SHARED, STATIC, SHARED_BEYOND, WHOLE_BEYOND))
        window = "worst 1 s window / quota"
        return [
            Bar("served of 95 msg/s", product_["served"], ">=", 0.98),
            Bar(window, product_["worst_1s_over_quota"], "<=", 1.10),
            Bar("3 nodes: served of 285 msg/s", shared["served"], ">=", 0.97),
            Bar(f"3 nodes: {window}", shared["worst_1s_over_quota"], "<=", 1.10),
            Bar("3 nodes, 450 msg/s: rate / quota", beyond["rate_over_quota"], ">=", 0.95),
            Bar(f"3 nodes, 450 msg/s: {window}", beyond["worst_1s_over_quota"], "<=", 1.10),
            Bar("each group its tenth: served", split["served"], "<", 0.98, "control"),
            Bar(f"no quota: {window}", free["worst_1s_over_quota"], ">", 1.10, "control"),
            Bar("each node its part: served", static["served"], "<", 0.97, "control"),
            Bar(f"each node the whole quota: {window}", whole["worst_1s_over_quota"], ">", 1.10, "control"),
        ]


def aim(load: Load, where: Placement) -> Load:
    """Give each message a group on the node that it is meant for, those groups in turn."""
    groups = [cycle(own) for own in where.groups_of(load.tenants[0])]
    columns: array[int] = load.group[:0]
    columns.extend(next(groups[node]) for node in load.group)
    return replace(load, group=columns)


def _reader(qps: float) -> Callable[[Trace], Figures]:
    def read(trace: Trace) -> Figures:
        numbers = range(len(trace.load))
        figures = dwell(trace, numbers)
        rate = sum(map(trace.was_handled, numbers)) * a.SECOND / trace.load.until
        return {
            **figures,
            "rate_over_quota": rate / qps,
            "worst_1s_over_quota": worst_window(trace, numbers) / qps,
        }

    return read
