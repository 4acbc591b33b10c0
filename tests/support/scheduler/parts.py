"""Topics and queues for tests of schedulers."""

import math
from dataclasses import dataclass

from evenlane.quota.topics.topic import Topic

SECOND = 1_000_000_000
MS = 1_000_000
MAX_GROUP_QPS = 150.0


@dataclass(slots=True, eq=False)
class Queue:
    project: str
    group: int = 0
    band: int = 1
    slot: object | None = None

    def __repr__(self) -> str:
        return f"{self.project}/{self.group}/{self.band}"


def topic_of(qps: float = 100.0, groups: int = 1, **rules) -> Topic:
    """A topic as the leader would accept it: no group above MAX_GROUP_QPS. Weight and burst default to 1."""
    most = max(groups, math.ceil(qps / MAX_GROUP_QPS))
    return Topic(**{"qps": qps, "groups": most, "burst": 1, "weight": 1.0, "spread": 1, **rules})
