"""`scale` end to end: the messages per second that a node handles while it knows many queues."""

from __future__ import annotations

import asyncio
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.broker.environment import environment
from evenlane.engine.proof.broker.puts import open_puts
from evenlane.engine.proof.load.load import PARTITIONS, tenant
from evenlane.engine.proof.runners.one_node import WIDE
from evenlane.engine.proof.scenarios.scale.decisions import BANDS, SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.node import Node
    from evenlane.engine.proof.broker.environment import Environment
    from evenlane.engine.proof.broker.puts import Puts
    from evenlane.engine.proof.figures import Figures

_QPS = 1_000_000  # no quota is reached here
_CLUSTER_CONFIG = ClusterConfig(partitions=PARTITIONS, group_qps=_QPS, max_group_qps=_QPS)
_BODY = b"x" * 100
_WINDOW = 2_000
_TIMEOUT_S = 120.0
_NEVER = 1 << 62
_Key = tuple[str, int, int]  # project, group, band
_environments = count(1)


async def measure(url: str, queues: int, busy: int, messages: int) -> Figures:
    """Put a message into every queue, then `messages` into `busy` of them, and measure. Raises EvenlaneError."""
    tenants = [tenant(f"tenant-{number}", _CLUSTER_CONFIG, qps=_QPS, groups=1) for number in range(queues // BANDS)]
    keys = [(each.name, 0, band) for each in tenants for band in range(BANDS)]
    chosen = keys if busy >= queues else keys[1 :: queues // busy][:busy]
    spreads = {each.name: each.topic.spread for each in tenants}
    topics = {each.name: each.topic for each in tenants}
    env = f"scale-{next(_environments)}"
    async with (
        environment(url, env, _CLUSTER_CONFIG, topics.get) as made,
        open_puts(url, env, _CLUSTER_CONFIG, spreads) as puts,
    ):
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await _rates(made, puts, keys, chosen, messages)
        except TimeoutError:
            raise EvenlaneError(f"{messages:,} messages were not handled within {_TIMEOUT_S:g} s") from None


async def _rates(made: Environment, puts: Puts, keys: Sequence[_Key], chosen: Sequence[_Key], messages: int) -> Figures:
    handled = _Handled()
    scheduler: FairScheduler[Queue] = FairScheduler(SLOTS, _QPS)
    async with made.serve(handled, scheduler, slots=SLOTS, limits=WIDE, on_stop=handled.fail) as node:
        handled.expect(len(keys))
        await _put(puts, keys, 0)
        await handled.all
        node.trust(0)  # nothing is handed out until all is fed
        handled.expect(messages)
        began = perf_counter()
        await _put(puts, [chosen[number % len(chosen)] for number in range(messages)], len(keys))
        await _wait_until_fed(node, {project for project, _group, _band in chosen}, messages)
        fed = perf_counter()
        node.trust(_NEVER)
        await handled.all
        ended = perf_counter()
    return {
        "put_and_feed_per_s": messages / (fed - began),
        "dispatch_per_s": messages / (ended - fed),
        "end_to_end_per_s": messages / (ended - began),
    }


class _Handled:
    """A handler that does nothing but count, and sets `all` when `expect` have come."""

    def __init__(self) -> None:
        self._left = 0
        self.all: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def expect(self, messages: int) -> None:
        self._left = messages
        self.all = asyncio.get_running_loop().create_future()

    async def __call__(self, _message: Message) -> None:
        self._left -= 1
        if not self._left:
            self.all.set_result(None)

    def fail(self, reason: str) -> None:
        if not self.all.done():
            self.all.set_exception(EvenlaneError(f"the scenario was aborted: {reason}"))


async def _put(puts: Puts, keys: Iterable[_Key], first: int) -> None:
    waiting = []
    for number, (project, group, band) in enumerate(keys, first):
        waiting.append(puts.put(project, group, band, number, _BODY))
        if len(waiting) == _WINDOW:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)


async def _wait_until_fed(node: Node, projects: Iterable[str], messages: int) -> None:
    """Wait until the node has received this many messages of these projects."""
    queues = [queue for project in projects for queue in node.queues.of_project(project)]
    while sum(queue.backlog for queue in queues) < messages:  # noqa: ASYNC110 - a feed notifies nobody
        await asyncio.sleep(0.002)
