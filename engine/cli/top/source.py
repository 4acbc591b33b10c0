"""Reads figures for `evenlane top`, and carries out its changes of topics, over persistent connections."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from evenlane.engine.admin.overview import client as overviews
from evenlane.engine.admin.why import client
from evenlane.engine.base.troubles import sentences
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_snapshot import read_config
from evenlane.engine.control.subscriptions.client import SubscriptionClient
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.control.topics.switch import VERBS, set_paused
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.control.topics.switch import State
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.ring.coordination.ports import Coordination

STATES: dict[str, State] = {verb: state for state, verb in VERBS.items()}


class OverviewSource(Protocol):
    """A source of figures. All methods raise EvenlaneError, with a sentence."""

    async def overview(self) -> dict[str, Any]: ...

    async def why(self, project: str) -> dict[str, Any]: ...

    async def switch(self, project: str, verb: str) -> str:
        """Run `pause` or `resume` on the topic; return a sentence with the result."""


class RemoteSource:
    """A source that asks the nodes. `by` is the author of changes, for the topics' history."""

    def __init__(
        self,
        settings: Settings,
        etcd: Coordination,
        line: RequestBus,
        by: str,
        *,
        timeout_s: float = overviews.TIMEOUT_S,
    ) -> None:
        self._etcd, self._env, self._by = etcd, settings.env, by
        self._overviews = overviews.OverviewClient(
            etcd, settings.cluster, lambda: nullcontext(line), timeout_s=timeout_s
        )
        self._why = client.WhyClient(etcd, settings.cluster, lambda: nullcontext(line))

    async def overview(self) -> dict[str, Any]:
        """Return an overview. Raises EvenlaneError also if no node answers, as an empty table would be wrong."""
        with connections.translate_errors():
            document = await self._overviews.overview()
        if document["nodes"] and not any(node["answered"] for node in document["nodes"]):
            raise EvenlaneError(self._no_answer(document["nodes"]))
        return document

    def _no_answer(self, nodes: list[dict[str, Any]]) -> str:
        """Return the error with troubles from the nodes' records in etcd, which may explain their silence."""
        asked = "the only node" if len(nodes) == 1 else f"any of the {len(nodes)} nodes"
        silence = (
            f"no answer came within {self._overviews.timeout_s:g} s from {asked} of environment {self._env!r}:"
            " only nodes know the backlogs"
        )
        return "; ".join([silence, *sentences({node["id"]: node["troubles"] for node in nodes})])

    async def why(self, project: str) -> dict[str, Any]:
        with connections.translate_errors():
            return await self._why.why(project)

    async def switch(self, project: str, verb: str) -> str:
        """Change the state like `evenlane topics pause` and `resume`; topics that are deleted or draining are left to
        these commands.
        """
        with connections.translate_errors():
            topic_client = TopicClient(self._etcd, self._env, await read_config(self._etcd, self._env), self._by)
            status = await set_paused(topic_client, project, STATES[verb], f"top: {verb}")
        if not status.is_accepted:
            return f"{project}: the spec is written but not in effect: {status.reason}"
        return f"{project}: {STATES[verb]}, accepted"


@asynccontextmanager
async def connect_source(settings: Settings, by: str) -> AsyncIterator[RemoteSource]:
    """Connect the source. Raises ConfigError, Unreachable; EvenlaneError if there is no such subscription."""
    async with AsyncExitStack() as opened:
        etcd = connections.etcd(settings)
        opened.push_async_callback(etcd.close)
        if settings.subscription is not None:
            with connections.translate_errors():
                await SubscriptionClient(etcd, settings.env).check(settings.subscription)
        line = connections.bus(settings, "evenlane top")
        opened.push_async_callback(line.close)
        await line.open()
        yield RemoteSource(settings, etcd, line, by)
