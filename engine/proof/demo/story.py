"""The demo's story: servers, topics, and turn after turn of the three arms."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live

from evenlane.engine.base.aio.cancellation import cancel_and_wait
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.cluster.topics import accept_topics
from evenlane.engine.proof.demo.plan import ARMS, CLUSTER_CONFIG, HOT, SPEC, Plan
from evenlane.engine.proof.demo.result import Result
from evenlane.engine.proof.demo.table import intro, render_preparing, render_running
from evenlane.engine.proof.demo.turn import Turn
from evenlane.engine.runtime.embedded.pair import Servers

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.engine.proof.demo.plan import Arm

_REFRESH_S = 0.25


class Demo:
    """`seconds` of load over `projects` tenants, at least two; progress goes to stderr."""

    def __init__(self, seconds: float, projects: int, *, quiet: bool = False) -> None:
        self._result = Result(Plan(seconds, projects))
        self._console = Console(stderr=True, highlight=False)
        self._quiet = quiet
        self._caches: dict[Arm, TopicCache] = {}
        self._settings: dict[Arm, Settings] = {}

    async def run(self) -> Result:
        """Raises EvenlaneError if a server, a put or the node failed."""
        started = monotonic()
        self._print("starting NATS and etcd ...")
        with tempfile.TemporaryDirectory(prefix="evenlane-demo-") as folder:
            async with Servers(Path(folder), fast=True) as servers:
                await _run_unless_ended(servers, self._story(servers))
        self._result.seconds = monotonic() - started
        return self._result

    async def _story(self, servers: Servers) -> None:
        async with AsyncExitStack() as opened:
            self._print(intro(self._result.plan))
            live = Live(render_preparing(self._result.plan), console=self._console, auto_refresh=False, transient=True)
            if self._console.is_terminal:
                opened.enter_context(live)
            with connections.translate_errors():
                await self._make_topics(servers, opened)
                for number in range(self._result.plan.rounds):
                    for arm in ARMS:
                        await self._take_turn(arm, number, live)

    async def _make_topics(self, servers: Servers, opened: AsyncExitStack) -> None:
        """Create the topics of each arm, in an environment of its own with its own streams and settle log."""
        projects = [*self._result.plan.victims, HOT]
        for arm in ARMS:
            settings = Settings(
                nats=(servers.nats.url,), etcd=(servers.etcd.endpoint,), env=f"demo-{arm.replace(' ', '-')}"
            )
            coordination = connections.etcd(settings)
            opened.push_async_callback(coordination.close)
            self._settings[arm] = settings
            topics = accept_topics(coordination, settings.env, CLUSTER_CONFIG, dict.fromkeys(projects, SPEC))
            self._caches[arm] = await opened.enter_async_context(topics)

    async def _take_turn(self, arm: Arm, number: int, live: Live) -> None:
        turn = Turn(arm, self._result.plan.load(arm, number))
        showing = asyncio.create_task(self._show(turn, number, live))
        try:
            await turn.run(self._settings[arm], self._caches[arm])
        finally:
            await cancel_and_wait(showing)
        self._result.add(turn)

    async def _show(self, turn: Turn, number: int, live: Live) -> None:
        while live.is_started:
            live.update(render_running(self._result, turn, number), refresh=True)
            await asyncio.sleep(_REFRESH_S)

    def _print(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text)


async def _run_unless_ended(servers: Servers, story: Coroutine[Any, Any, None]) -> None:
    """Run the story to its end. Raises EvenlaneError as soon as a server ends."""
    story_task = asyncio.create_task(story)
    ending = asyncio.create_task(servers.wait())
    try:
        await asyncio.wait({story_task, ending}, return_when=asyncio.FIRST_COMPLETED)
        if ending.done() and not story_task.done():
            raise EvenlaneError(f"the demo was aborted: {ending.result()}")
        await story_task
    finally:
        for task in (story_task, ending):
            task.cancel()
        await asyncio.gather(story_task, ending, return_exceptions=True)
