"""The broker runner of `push`: the node pushes to real endpoints, which a process of its own serves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as with_fields

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.core.message.message import Pause
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.node.push.client import Client, tls
from evenlane.engine.node.push.endpoint import Endpoints as Known
from evenlane.engine.node.push.pusher import Pusher
from evenlane.engine.node.push.response import failure
from evenlane.engine.proof.scenarios.broker import Broker, Run, head_at
from evenlane.engine.proof.scenarios.environment import environment
from evenlane.engine.proof.scenarios.push_endpoints import Endpoints, Plan
from evenlane.engine.proof.scenarios.putter import Putter
from evenlane.engine.proof.scenarios.trace import NEVER
from evenlane.quota.topics.fields import push_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.proof.scenarios.arm import Arm
    from evenlane.engine.proof.scenarios.load import Load
    from evenlane.engine.proof.scenarios.trace import Trace


class PushBroker(Broker):
    """The bad one is the last tenant; its endpoint is a process of its own, as it may not take the others' time there.
    `timeout` in s. An arm `at_hand`, the control, pushes without pauses: a plain pool of workers.
    """

    def __init__(self, url: str, slots: int, good: Plan, bad: Plan, timeout: float) -> None:
        super().__init__(url, slots)
        self._good, self._bad, self._timeout = good, bad, timeout

    async def run(self, arm: Arm, passed: Callable[[float], None]) -> Trace:
        env = self.next_env()
        async with Endpoints(self._good) as good, Endpoints(self._bad) as bad:
            load = self._with_urls(arm.load, [*good.ports, *bad.ports])
            run = _Pushing(load, passed, bad)
            pusher = _Plain() if arm.at_hand else Pusher(Settings(push_private=True))
            limits = MemoryBudget(read_ahead=1 << 20, payload_bytes=1 << 30) if arm.at_hand else MemoryBudget()
            try:
                async with (
                    environment(self.url, env, load.facts, load.tenants) as made,
                    Putter(self.url, env, load) as putter,
                    made.serving(
                        run.handle, arm.make(self.slots, head_at), slots=self.slots, limits=limits, on_stop=run.fail,
                        push=run.by(pusher),
                    ),
                ):  # fmt: skip
                    await run.through(putter)
            finally:
                await pusher.close()
        return run.trace

    def _with_urls(self, load: Load, ports: list[int]) -> Load:
        """Each tenant's topic with its own endpoint."""

        def pushed(number: int) -> dict[str, object]:
            url = f"http://127.0.0.1:{ports[number]}/{load.tenants[number].name}"
            return push_settings("push", {"url": url, "timeout": self._timeout})

        tenants = (
            replace(each, topic=with_fields(each.topic, push=pushed(number)))
            for number, each in enumerate(load.tenants)
        )
        return replace(load, tenants=tuple(tenants))


class _Pushing(Run):
    """A message has started with its first request, and ended when its endpoint has taken it."""

    def __init__(self, load: Load, passed: Callable[[float], None], bad: Endpoints) -> None:
        super().__init__(load, passed)
        self._bad = bad
        self.trace.figures |= {"pauses": 0.0, "failed_pushes": 0.0}

    def begins(self, origin: int) -> None:
        self._bad.begin(origin)

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


class _Plain:
    """The control: whatever comes is POSTed at once, and what fails comes again."""

    def __init__(self) -> None:
        self._client = Client(private=True, context=tls(None))
        self._known = Known()

    async def __call__(self, message: Message) -> None:
        assert message.queue.topic is not None
        assert message.queue.topic.push is not None
        endpoint = self._known.get(message.project, message.queue.topic.push)
        answer = await self._client.post(
            endpoint.url, {}, message.body, endpoint.settings["timeout"], endpoint.where
        )  # fmt: skip
        if not answer.is_success:
            raise failure(answer, endpoint.where, ())

    async def close(self) -> None:
        await self._client.close()
