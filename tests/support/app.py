"""An application on a node with the store in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import msgspec

from evenlane.engine.node.handlers.application import application_of
from evenlane.engine.producer.producer import Producer
from evenlane.quota.topics.topic import Accepted
from tests.support.node.world import CLUSTER_CONFIG, World, topic

if TYPE_CHECKING:
    from evenlane import Evenlane
    from evenlane.engine.node.node import Node


class Order(msgspec.Struct):
    id: int
    amount: int


class _Topics:
    """The topics of a world, for a producer."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[str, Accepted] = {}

    def get(self, project: str) -> Accepted | None:
        if project not in self._known and project in self._world.topics:
            rules = self._world.topics[project]
            self._known[project] = Accepted(
                topic=rules, revision=1, number=1, active=rules.groups, draining=(), deleted=False
            )
        return self._known.get(project)


class Running(World):
    """`async with Running(app, "acme") as running:` an application that runs, with topics of these projects.

    `ended` has the reasons with which it has ended by itself.
    """

    def __init__(self, app: Evenlane, *projects: str, start_timeout_s: float = 5.0, **options: Any) -> None:
        super().__init__(**{project: topic() for project in projects})
        self._application = application_of(app)
        self._options = options
        self.start_timeout_s = start_timeout_s
        self.ended: list[str] = []
        self.app_node: Node | None = None

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            await self._application.begin(self)
            self.app_node = await self.node(
                routes=self._application.routes, fallback=self._application.fallback, **self._options
            )
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await super().__aexit__()
        finally:
            await self._application.end(5.0)

    async def put(self, project: str, body: bytes = b"x", **options: Any) -> str:  # type: ignore[override]
        return await super().put(body, project, **options)

    def make_producer(self) -> Producer:
        return Producer(store=self.store, topics=_Topics(self), facts=CLUSTER_CONFIG)

    def on_end(self, reason: str) -> None:
        self.ended.append(reason)


async def never() -> None:
    await asyncio.Event().wait()
