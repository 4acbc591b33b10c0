"""The broker runner of `push`: the node pushes to real endpoints, which a separate process serves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as with_fields

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.core.message.handler_exceptions import Pause
from evenlane.engine.node.push.client import Client, tls
from evenlane.engine.node.push.endpoint import Endpoints as Known
from evenlane.engine.node.push.pusher import Pusher
from evenlane.engine.node.push.response import failure
from evenlane.engine.proof.load.trace import NEVER
from evenlane.engine.proof.runners.one_node import Broker, Run
from evenlane.engine.proof.scenarios.push.endpoints import EndpointPlan, EndpointServer
from evenlane.quota.topics.fields import push_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.proof.arms import Arm
    from evenlane.engine.proof.load.load import Load
    from evenlane.engine.proof.load.trace import Trace


class PushBroker(Broker):
    """The bad customer is the last tenant. A separate process serves its endpoint, and takes no time from the others.
    `timeout` is in s. A `prefetched` arm is the control, which pushes without pauses: a plain pool of workers.
    """

    def __init__(self, url: str, slots: int, good: EndpointPlan, bad: EndpointPlan, timeout: float) -> None:
        super().__init__(url, slots)
        self._good, self._bad, self._timeout = good, bad, timeout

    async def run(self, arm: Arm, passed: Callable[[float], None]) -> Trace:
        async with EndpointServer(self._good) as good, EndpointServer(self._bad) as bad:
            load = self._with_urls(arm.load, [*good.ports, *bad.ports])
            run = _PushRun(load, passed, bad)
            pusher = _PlainPool() if arm.prefetched else Pusher(Settings(push_private=True))
            try:
                return await self.through(arm, load, run, run.by(pusher))
            finally:
                await pusher.close()

    def _with_urls(self, load: Load, ports: list[int]) -> Load:
        """Each tenant's topic with its own endpoint."""

        def push_spec(number: int) -> dict[str, object]:
            url = f"http://127.0.0.1:{ports[number]}/{load.tenants[number].name}"
            return push_settings("push", {"url": url, "timeout": self._timeout})

        tenants = (
            replace(each, topic=with_fields(each.topic, push=push_spec(number)))
            for number, each in enumerate(load.tenants)
        )
        return replace(load, tenants=tuple(tenants))


class _PushRun(Run):
    """A message has started with its first request, and ended when its endpoint has taken it."""

    def __init__(self, load: Load, passed: Callable[[float], None], bad: EndpointServer) -> None:
        super().__init__(load, passed)
        self._bad = bad
        self.trace.figures |= {"pauses": 0.0, "failed_pushes": 0.0}

    async def on_begin(self, origin: int) -> None:
        await self._bad.begin(origin)

    def by(self, pusher: Callable[[Message], Awaitable[None]]) -> Callable[[Message], Awaitable[None]]:
        trace = self.trace

        async def push(message: Message) -> None:
            number, now = int(message.body), self.now()
            try:
                await pusher(message)
            except Pause:
                trace.figures["pauses"] += 1
                raise
            except Exception:
                trace.figures["failed_pushes"] += 1
                if trace.started[number] == NEVER:
                    trace.started[number] = now
                raise
            if trace.ended[number] != NEVER:
                self.again += 1
                return
            if trace.started[number] == NEVER:
                trace.started[number] = now
            trace.ended[number] = self.now()

        return push


class _PlainPool:
    """The control: POSTs each message at once, and again if that fails."""

    def __init__(self) -> None:
        self._client = Client(private=True, context=tls(None))
        self._known = Known()

    async def __call__(self, message: Message) -> None:
        assert message.queue.rules.topic is not None
        assert message.queue.rules.topic.push is not None
        endpoint = self._known.get(message.project, message.queue.rules.topic.push)
        answer = await self._client.post(
            endpoint.url, {}, message.body, endpoint.settings["timeout"], endpoint.where
        )  # fmt: skip
        if not answer.is_success:
            raise failure(answer, endpoint.where, ())

    async def close(self) -> None:
        await self._client.close()
