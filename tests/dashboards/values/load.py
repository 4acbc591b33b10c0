"""A known load on two nodes: a project for each case that the dashboards tell apart, at constant rates. Every figure of
a dashboard follows from the numbers here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

STEP_S = 15  # between two scrapes
AT_S = 1_200  # of the queries; the load began at 0
WINDOW_S, RANGE_S, SPAN_S = 60, 600, 60  # Grafana's $__rate_interval, $__range and $__interval
OUTCOMES = ("handled", "retried", "dead", "expired", "dropped")
NONE: Mapping[str, float] = MappingProxyType({})


class Lane(NamedTuple):
    """A project's messages of one priority on one node. Rates are in messages per second: `arrived` includes retries.
    `start` is the backlog at 0. Messages wait `dwell_s` if there is no backlog, and run for `ran_s`. `reasons` has the
    share of the time that the head of the only queue waits for each reason, the present one first. `fair` is the slot
    time got over the slot time due, of a busy project. Without `measured`, rates and ages are unknown.
    """

    project: str
    priority: str
    node: str
    arrived: float
    handled: float = 0.0
    retried: float = 0.0
    dead: float = 0.0
    expired: float = 0.0
    dropped: float = 0.0
    quota: float = 0.0
    start: float = 0.0
    dwell_s: float = 0.0
    ran_s: float = 0.0
    reasons: Mapping[str, float] = NONE
    fair: float | None = None
    missing: float = 0.0
    measured: bool = True

    @property
    def attempts(self) -> float:
        return self.handled + self.retried + self.dead

    @property
    def taken(self) -> float:
        """All that leave but dropped messages, with which a forecast doesn't reckon."""
        return self.attempts + self.expired

    @property
    def leaves(self) -> float:
        return self.taken + self.dropped

    @property
    def growth(self) -> float:
        return self.arrived - self.leaves

    def backlog(self, t: float) -> float:
        return self.start + self.growth * t

    @property
    def ages(self) -> tuple[float, float]:
        """The age of the oldest message, first in first out, as its value at 0 and its growth per second."""
        if not self.growth:
            return self.start / (self.leaves or 1.0), 0.0  # the whole backlog came within that time
        if not self.arrived:
            return 0.0, 1.0  # all came at 0
        # The oldest at t is the one after the first leaves * t, and came at leaves * t / arrived.
        return 0.0, 1.0 - self.leaves / self.arrived

    def age(self, t: float) -> float:
        first, each = self.ages
        return first + each * t

    def dwell(self, t: float) -> float:
        """How long a message has waited that starts at t: it was the oldest."""
        return self.age(t) if self.start or self.growth else self.dwell_s


LANES = (
    # 60 % of its quota.
    Lane("steady", "mid", "a", 40, handled=40, quota=67, dwell_s=0.004, ran_s=0.05),
    Lane("steady", "mid", "b", 20, handled=20, quota=33, dwell_s=0.002, ran_s=0.05),
    # Three times its quota.
    Lane("hot", "mid", "a", 90, handled=30, quota=30, ran_s=0.1, reasons={"quota": 1.0}, fair=1.0),
    Lane("hot", "mid", "b", 60, handled=20, quota=20, ran_s=0.1, reasons={"quota": 1.0}, fair=0.8),
    Lane("paused", "high", "b", 1, dropped=0.25, quota=10, reasons={"paused": 1.0}),
    # Of 12 new messages 4 succeed; the others fail twice.
    Lane("failing", "mid", "a", 20, handled=4, retried=8, dead=8, quota=200, dwell_s=0.003, ran_s=0.1),
    Lane("expiring", "low", "b", 11, handled=1, expired=10, quota=1, start=22, ran_s=0.0, reasons={"quota": 1.0}),
    # Its partition has just moved.
    Lane(
        "purged", "low", "b", 4, dropped=4, quota=10, start=8, reasons={"paused": 1.0}, missing=0.2, measured=False,
    ),
    # Both want all slots of the node.
    Lane(
        "gold", "mid", "a", 45, handled=45, quota=1_000, start=450, ran_s=0.2, fair=1.25,
        reasons={"headroom": 0.25, "quota": 0.75},
    ),
    Lane(
        "bulk", "mid", "a", 5, handled=5, quota=1_000, start=1_000, ran_s=0.2, fair=0.4,
        reasons={"fairness": 0.75, "quota": 0.25},
    ),
    # A backlog that was put at once; its high messages go first.
    Lane("draining", "high", "b", 2, handled=2, quota=60, dwell_s=0.02, ran_s=0.0, fair=1.0),
    Lane(
        "draining", "low", "b", 0, handled=10, start=15_000, ran_s=0.1, reasons={"quota": 0.5, "higher_priority": 0.5},
        fair=1.0,
    ),
    # Projects without a label of their own.
    Lane("other", "mid", "a", 1, handled=1, dwell_s=0.001, ran_s=0.0),
)  # fmt: skip
TARGETS_S = {"high": 60, "mid": 600, "low": 3_600}
PAUSED = ("paused", "purged")
COMPETES = ("fairness", "handlers_busy", "headroom")

LES = {"dwell": (0.001, 0.0025, 0.005, 0.05, 1.0), "handling": (0.01, 0.1, 0.25)}
"""Bounds of some buckets of the histograms, in seconds; the last one is +Inf."""

BUCKETS = {
    # Messages per second by priority and node that are between two bounds.
    "dwell": {
        ("high", "b"): (0, 0, 0, 2, 0, 0),
        ("mid", "a"): (1, 0, 60, 0, 0, 80),
        ("mid", "b"): (0, 20, 0, 0, 0, 20),
        ("low", "b"): (0, 0, 0, 0, 1, 10),
    },
    "handling": {
        ("high", "b"): (2, 0, 0, 0),
        ("mid", "a"): (1, 90, 50, 0),
        ("mid", "b"): (0, 40, 0, 0),
        ("low", "b"): (1, 10, 0, 0),
    },
}


class Node(NamedTuple):
    """A node's own figures. `each_minute` has how much its counters grow in a minute, by metric and label value."""

    name: str
    address: str
    leads: bool
    epochs: Mapping[int, int]
    gauges: Mapping[str, float]
    each_minute: Mapping[tuple[str, str], float]


PARTITIONS = 9  # nobody owns the last one
END = 1_000  # last sequence of partition 0; that of partition n is n + 1 times as high
POSITIONS = {"end": 0, "settled": 20, "purged": 50}
"""How far each position of a partition is behind its end."""
NODES = {
    "a": Node(
        "node-a", "a:8080", True, {0: 3, 1: 4, 2: 5, 3: 1, 4: 9},
        {
            "lease_age_seconds": 3, "lease_left_seconds": 7, "settle_lag_seconds": 0.25, "index_messages": 1_200,
            "payload_bytes": 600, "payload_budget_bytes": 1_000, "slots": 20, "slots_busy": 17, "pending_copies": 3,
            "loop_lag_seconds": 0.25, "projects": 8, "sampling_round_seconds": 1.5, "projects_left_out": 2,
            "topics_refused": 1, "desired_nodes": 3,
        },
        {
            ("partition_moves", "acquired"): 2, ("partition_moves", "released"): 1, ("duplicates", "hung"): 1,
            ("missing_sequences", ""): 0, ("stray_messages", ""): 1, ("topic_refusals", "wish"): 3,
            ("loop_blocked_seconds", ""): 0, ("ended_blocked_seconds", ""): 0.3,
        },
    ),
    "b": Node(
        "node-b", "b:8080", False, {5: 2, 6: 8, 7: 6},
        {
            "lease_age_seconds": 1, "lease_left_seconds": 9, "settle_lag_seconds": 0.125, "index_messages": 50,
            "payload_bytes": 100, "payload_budget_bytes": 1_000, "slots": 10, "slots_busy": 4, "pending_copies": 0,
            "loop_lag_seconds": 0.5, "projects": 6, "sampling_round_seconds": 0.75, "projects_left_out": 0,
            "topics_refused": 0,
        },
        {
            ("partition_moves", "acquired"): 1, ("partition_moves", "released"): 1, ("duplicates", "crash"): 2,
            ("missing_sequences", ""): 12, ("stray_messages", ""): 0, ("topic_refusals", "accepted"): 1,
            ("loop_blocked_seconds", ""): 1.5, ("ended_blocked_seconds", ""): 0,
        },
    ),
}  # fmt: skip
LABELS = {
    "partition_moves": ("how", ("acquired", "released", "lost")),
    "duplicates": ("cause", ("crash", "hung", "void")),
    "topic_refusals": ("where", ("wish", "accepted")),
}
"""Label and values of the node's counters that have one."""

TROUBLES = ("blocked", "ownership", "records", "settle_log", "topics", "store")
SUBSCRIPTIONS = {"": ("active", 2), "audit": ("active", 1), "billing": ("creating", 0)}
"""State and running nodes of each subscription, which the leader exports."""

CPU, MEMORY = {"a": 0.5, "b": 0.25}, {"a": 1e8, "b": 5e7}
GENERATION_S = 60  # a new plan each minute
