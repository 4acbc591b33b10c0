"""A load: tenants, and the arrivals of their messages. Data only, and the same for all runners."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.proof.load.arrivals import SECOND, uniform
from evenlane.quota.topics.topic import complete, parse_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.quota.topics.topic import Topic

PARTITIONS = 16  # of each environment that the broker runner makes
CLUSTER_CONFIG = ClusterConfig(partitions=PARTITIONS)


def config_for(nodes: int) -> ClusterConfig:
    """Return the config of an environment for this number of nodes: for several, the default one."""
    return CLUSTER_CONFIG if nodes == 1 else ClusterConfig(layout="hashed")


class Arrival(NamedTuple):
    """One message: `at` and `service` in ns, `tenant` the tenant's number, `band` 0 the most urgent."""

    at: int
    tenant: int
    group: int
    band: int
    service: int


@dataclass(frozen=True)
class LoadTenant:
    name: str
    topic: Topic


def tenant(name: str, cluster_config: ClusterConfig = CLUSTER_CONFIG, **spec: object) -> LoadTenant:
    """A tenant whose topic has this spec, completed as the cluster would. Raises TopicError."""
    return LoadTenant(name, complete(parse_spec(json.dumps(spec).encode()), cluster_config))


@dataclass(frozen=True)
class Load:
    """Arrivals in order of time, one column for each of their fields, and how long to watch, in ns."""

    tenants: tuple[LoadTenant, ...]
    until: int
    cluster_config: ClusterConfig = CLUSTER_CONFIG
    at: array[int] = field(default_factory=lambda: array("q"))
    tenant: array[int] = field(default_factory=lambda: array("l"))
    group: array[int] = field(default_factory=lambda: array("l"))
    band: array[int] = field(default_factory=lambda: array("b"))
    service: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.at)

    def __iter__(self) -> Iterator[Arrival]:
        return map(Arrival._make, zip(self.at, self.tenant, self.group, self.band, self.service, strict=True))

    @classmethod
    def of(
        cls,
        tenants: Iterable[LoadTenant],
        arrivals: Iterable[Arrival],
        until: int,
        cluster_config: ClusterConfig = CLUSTER_CONFIG,
    ) -> Load:
        """Sort arrivals by time; those of the same instant keep the given order."""
        made = cls(tuple(tenants), until, cluster_config)
        for arrival in sorted(arrivals, key=lambda each: each.at):
            made.at.append(arrival.at)
            made.tenant.append(arrival.tenant)
            made.group.append(arrival.group)
            made.band.append(arrival.band)
            made.service.append(arrival.service)
        return made

    @classmethod
    def steady(
        cls,
        tenants: Iterable[LoadTenant],
        rate: float,
        seconds: float,
        cluster_config: ClusterConfig,
        *,
        band: int,
        turn: int = 0,
    ) -> Load:
        """`rate` messages per second, for the first groups of all tenants in turn, beginning with number `turn`."""
        made = cls(tuple(tenants), int(seconds * SECOND), cluster_config)
        arrivals = enumerate(uniform(rate, 0, made.until), turn)
        come = (Arrival(at, number % len(made.tenants), 0, band, 0) for number, at in arrivals)
        return cls.of(made.tenants, come, made.until, cluster_config)

    def without(self, *names: str) -> Load:
        """The same load with these tenants silent: topics and numbers of tenants stay."""
        silent = {number for number, each in enumerate(self.tenants) if each.name in names}
        return self.of(
            self.tenants, (each for each in self if each.tenant not in silent), self.until, self.cluster_config
        )

    def only_band(self, band: int) -> Load:
        return self.of(self.tenants, (each for each in self if each.band == band), self.until, self.cluster_config)

    def in_one_band(self) -> Load:
        """The same with all messages of a group in one queue; the order of arrivals stays."""
        return replace(self, band=array("b", [0]) * len(self))

    def with_spec(self, name: str, **spec: object) -> Load:
        """The same with another topic for one tenant."""
        changed = tenant(name, self.cluster_config, **spec)
        return replace(self, tenants=tuple(changed if each.name == name else each for each in self.tenants))

    def numbers(self, *, tenants: Iterable[str] | None = None, but: str = "", band: int | None = None) -> list[int]:
        """The messages of these tenants (None: all `but` this one) and this band (None: all)."""
        names = {each.name for each in self.tenants} - {but} if tenants is None else set(tenants)
        chosen = {n for n, each in enumerate(self.tenants) if each.name in names}
        found = (n for n, of in enumerate(self.tenant) if of in chosen)
        return [n for n in found if band is None or self.band[n] == band]
