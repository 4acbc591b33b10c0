"""A placement controller on etcd in memory, with nodes that only register."""

import asyncio
from contextlib import suppress

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.leader.placement_controller import PlacementController, PlacementTuning
from evenlane.quota.topics.topic import accept, complete, parse_spec
from evenlane.ring.coordination.ports import CreatedAt
from evenlane.ring.membership.records import (
    GenerationRecord,
    NodeRecord,
    PlanRecord,
    RecordError,
    decode,
    encode,
)
from evenlane.ring.placement.bounded import place_in_bounds
from tests.support.membership_cluster import ENV, key
from tests.support.until import until
from tests.unit.cluster.observed_client import ObservedClient

PARTITIONS = 4
LEADER = key("leader")


class FakeTopicCache:
    """The accepted topics. Each has one group, so that all its load is on one partition."""

    def __init__(self):
        self.on_change, self.topics = [], {}

    def all(self):
        return dict(self.topics)

    def put(self, project, qps, cluster_config):
        raw = b'{"qps": %d, "groups": 1}' % qps
        self.topics[project] = accept(complete(parse_spec(raw), cluster_config), 1, None)
        for notify in self.on_change:
            notify(project, self.topics[project])


class PlacementCluster:
    def __init__(self, partitions=PARTITIONS, tuning=PlacementTuning(), strategy=place_in_bounds):  # noqa: B008 - frozen
        self.cluster_config = ClusterConfig(partitions=partitions, max_group_qps=1_000_000)
        self.client, self.topic_cache, self.records = ObservedClient(), FakeTopicCache(), RecordReader(ENV)
        self.placing = PlacementController(
            self.client,
            ENV,
            self.cluster_config,
            self.topic_cache,
            ("tested", strategy),
            self.records,
            tuning,
        )
        self.leases, self.serving = {}, None

    def put_topic(self, project, qps):
        self.topic_cache.put(project, qps, self.cluster_config)

    async def lead(self):
        epoch = await self.client.put(LEADER, b"{}")
        self.serving = asyncio.ensure_future(self.placing.serve(CreatedAt(LEADER, epoch)))

    async def end(self):
        if self.serving is not None:
            self.serving.cancel()
            await asyncio.gather(self.serving, return_exceptions=True)
        await self.client.close()

    async def join(self, *names, **fields):
        for name in names:
            self.leases[name] = self.leases.get(name) or await self.client.grant(600)
            await self.client.put(key("nodes", name), encode(NodeRecord(**fields)), self.leases[name])

    async def die(self, *names):
        for name in names:
            await self.client.revoke(self.leases.pop(name))

    async def plans(self):
        """The plan keys with a valid value."""
        found = {}
        for item in (await self.client.list(key("plan", ""))).items:
            with suppress(RecordError):
                found[item.key.rpartition("/")[2]] = decode(PlanRecord, item.key, item.value)
        return found

    async def planned(self):
        """Partition -> node; None while a partition has no node, or two."""
        found = [(p, name) for name, record in (await self.plans()).items() for p in record.partitions]
        return dict(found) if len(found) == len(dict(found)) == self.cluster_config.partitions else None

    async def is_planned(self, planned):
        return await self.planned() == planned

    async def has_plans(self, check):
        """Whether the plans pass this check."""
        return check(await self.plans())

    async def among(self, *names):
        """Wait until exactly these nodes have a plan, and it is complete."""

        async def check():
            planned = await self.planned()
            return planned if planned and sorted(names) == sorted(await self.plans()) else None

        return await until(check)

    async def generation(self):
        item = await self.client.get(key("generation"))
        return decode(GenerationRecord, item.key, item.value).generation

    async def settled(self):
        """Wait until the leader has read everything and has no plan to make."""
        await until(lambda: (leader := self.placing._leader).phase == "leading" and leader.due() is None)

    def writes(self):
        return [*self.client.store.events_after(0, key("plan", ""))]
