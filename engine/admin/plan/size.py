"""Computes the size of a cluster for a load: nodes, slots, partitions, disk, and the load of NATS and etcd.

The result follows from measured costs (`costs.py`) and from assumptions, which come with each figure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.admin.plan.costs import (
    ETCD_REQUESTS,
    METER_BYTES,
    NODE_CPU_US,
    PROCESS_BYTES,
    PUTS_PER_S,
    SERVER_DELIVERY_US,
    SERVER_WRITE_US,
    STORED_BYTES,
    Build,
)
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.base.durations import format_duration
from evenlane.engine.base.plural import format_count
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.errors import ConfigError
from evenlane.ring.placement.bounds import FINE

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTINGS = Settings()
_UTILISATION = 0.7  # of slots and cores: what is above it waits in bursts
_LEAST_NODES = 2
_MOST_PARTITIONS = 65_536
_MOST_QPS, _MOST_HANDLER_S, _MOST_BYTES = 10_000_000.0, 86_400.0, 64 * 2**20


class Figure(NamedTuple):
    """A figure with its unit, and the assumption behind it."""

    name: str
    value: float
    unit: str
    because: str


@dataclass(frozen=True)
class Load:
    """The load of a cluster. Rates in messages per second, times in seconds, sizes in bytes.

    `handler_cpu_s` is the part of `handler_s` in which the handler computes. `retention_s` is how long messages may
    pile up. `growth` is how many times more nodes there will ever be. Raises ConfigError for invalid values.
    """

    qps: float
    handler_s: float
    handler_cpu_s: float = 0.0
    concurrency: int = _SETTINGS.concurrency
    message_bytes: int = 1_000
    retention_s: float = 3_600.0
    replicas: int = 3
    growth: float = 4.0
    build: Build = "pure"

    def __post_init__(self) -> None:
        _check("--qps", self.qps, 0.001, _MOST_QPS)
        _check("--handler-ms", self.handler_s * 1e3, 0, _MOST_HANDLER_S * 1e3)
        _check("--handler-cpu-ms", self.handler_cpu_s * 1e3, 0, _MOST_HANDLER_S * 1e3)
        _check("--concurrency", self.concurrency, 1, 100_000)
        _check("--message-bytes", self.message_bytes, 0, _MOST_BYTES)
        _check("--replicas", self.replicas, 1, 5)
        _check("--growth", self.growth, 1, 1_000)
        if self.build not in NODE_CPU_US:
            raise ConfigError(f"--build must be one of {', '.join(NODE_CPU_US)}, not {self.build!r}")
        if self.handler_cpu_s > self.handler_s:
            raise ConfigError(
                f"--handler-cpu-ms ({self.handler_cpu_s * 1e3:g}) is above --handler-ms ({self.handler_s * 1e3:g}):"
                " a handler computes for no longer than it runs"
            )


def size(load: Load) -> list[Figure]:
    """Return the figures for a load. Raises ConfigError if no environment can have that many partitions."""
    slots = math.ceil(round(load.qps * load.handler_s / _UTILISATION, 6))
    cores = load.qps * (NODE_CPU_US[load.build] / 1e6 + load.handler_cpu_s)
    by_slots = max(1, math.ceil(slots / load.concurrency))
    by_cores = max(1, math.ceil(round(cores / _UTILISATION, 6)))
    nodes = max(_LEAST_NODES, max(by_slots, by_cores) + 1)
    partitions = _partitions(nodes, load.growth)
    return [
        Figure("slots", slots, "", f"qps x handler time, of which {_UTILISATION:.0%} are busy"),
        Figure("nodes for slots", by_slots, "", f"{load.concurrency:,} slots each (concurrency)"),
        Figure(
            "nodes for cores", by_cores, "",
            f"one core each, {_UTILISATION:.0%} busy: {NODE_CPU_US[load.build]:g} us a message ({load.build}),"
            " and the handler's",
        ),
        Figure("nodes", nodes, "", "the larger number, and one that may die"),
        Figure(
            "partitions", partitions, "",
            f"{FINE} for each of {load.growth:g} x {nodes:,} nodes, as a power of two; can't be changed later",
        ),
        *_memory(),
        *_server(load, nodes, partitions),
        Figure(
            "etcd requests", nodes * ETCD_REQUESTS / (_SETTINGS.lease_ttl / 2), "/s",
            f"{ETCD_REQUESTS} of each node in half of lease_ttl ({_SETTINGS.lease_ttl:g} s), idle",
        ),
    ]  # fmt: skip


def _partitions(nodes: int, growth: float) -> int:
    least = FINE * math.ceil(nodes * growth)
    partitions = max(ClusterConfig().partitions, 1 << (least - 1).bit_length())
    if partitions > _MOST_PARTITIONS:
        raise ConfigError(
            f"{format_count(nodes, 'node')} that may become {growth:g} x as many need {partitions:,} partitions, but an"
            f" environment has at most {_MOST_PARTITIONS:,}: spread the projects over several environments, or give"
            " nodes more slots with --concurrency"
        )
    return partitions


def _memory() -> Iterator[Figure]:
    budget = _SETTINGS.payload_budget + _SETTINGS.feed_budget
    yield Figure(
        "memory of a node", PROCESS_BYTES + budget, "bytes", "the process, payload_budget and feed_budget; handlers add"
    )


def _server(load: Load, nodes: int, partitions: int) -> Iterator[Figure]:
    others = load.replicas - 1
    copies = f", out to {format_count(others, 'other server')}" if others else ", out"
    stored = load.message_bytes + STORED_BYTES
    appends = min(load.qps, partitions / _SETTINGS.settle_interval)
    writes = load.qps + appends
    keep = _SETTINGS.meter_keep
    records = nodes * METER_BYTES * keep / _SETTINGS.meter_interval
    yield Figure(
        "disk of a NATS server", load.qps * load.retention_s * stored + records, "bytes",
        f"a backlog of {format_duration(load.retention_s)} with {STORED_BYTES} bytes for headers and index, and records"
        f" for reports of {keep / 86_400:g} days; each server holds all streams",
    )  # fmt: skip
    yield Figure(
        "synced writes", writes, "/s",
        f"a put each, and a settle record of each busy partition per {_SETTINGS.settle_interval:g} s; one producer"
        f" reached {round(PUTS_PER_S, -3):,}/s on a local disk: measure yours",
    )  # fmt: skip
    yield Figure(
        "cores of a NATS server", (writes * SERVER_WRITE_US + load.qps * SERVER_DELIVERY_US) / 1e6, "",
        f"{SERVER_WRITE_US:g} us a write, {SERVER_DELIVERY_US:g} us a delivery, if one server leads all streams",
    )  # fmt: skip
    yield Figure(
        "network of a NATS server",
        load.qps * stored * (1 + load.replicas),
        "bytes/s",
        f"in once{copies} and to one node, if one server leads all streams",
    )


def _check(option: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # false for nan, too
        raise ConfigError(f"{option} must be from {least:g} to {most:,.12g}, not {value:g}")
