"""A world with dead letters, and lanes to replay them into."""

from collections import Counter
from typing import Self

from evenlane.engine.admin.dead_letters.client import DeadLetterClient
from evenlane.engine.base import names
from evenlane.engine.core.wire import headers as h
from tests.support.dead_letters import bury
from tests.support.producer_world import CLUSTER_CONFIG, ProducerWorld


class DeadLetterWorld(ProducerWorld):
    async def __aenter__(self) -> Self:
        await self.store.open()
        await self.store.prepare([names.LaneId("lanes", number) for number in range(CLUSTER_CONFIG.partitions)])
        await self.store.prepare([names.LaneId("later", number) for number in range(CLUSTER_CONFIG.partitions)])
        self.dead_letters = DeadLetterClient(self.store, self.env, self.topics, CLUSTER_CONFIG)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()

    async def fill(self, count: int, **more) -> list[int]:
        return [await bury(self.store, f"m{number}", **more) for number in range(count)]

    def dead(self) -> list[int]:
        return [message.sequence for message in self.server.messages("DEAD_online")]

    def queued(self) -> Counter:
        """The ids of the messages in the lanes."""
        ids = [h.value(message.headers, h.ID).split(":")[1] for message in self.stored()]
        return Counter(ids)
