"""Where `evenlane top` has its figures from, and how it changes a topic: connections that are kept."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from evenlane.engine import asking, clients
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.overview import asking as overviews
from evenlane.engine.overview.cluster import agreed
from evenlane.engine.switching import VERBS, switch
from evenlane.engine.troubles import sentences
from evenlane.engine.wishes import Wishes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.ports import Questions
    from evenlane.engine.settings import Settings
    from evenlane.engine.switching import State
    from evenlane.ring.coordination import Coordination

STATES: dict[str, State] = {verb: state for state, verb in VERBS.items()}


class Source(Protocol):
    """All raise EvenlaneError, with a sentence."""

    async def overview(self) -> dict[str, Any]: ...

    async def why(self, project: str) -> dict[str, Any]: ...

    async def switch(self, project: str, verb: str) -> str:
        """`pause` or `resume` its topic; a sentence of what came of it."""


class Reached:
    """`by` is who changes topics, for their history."""

    def __init__(self, settings: Settings, etcd: Coordination, line: Questions, by: str) -> None:
        self._etcd, self._env, self._by = etcd, settings.env, by
        self._overviews = overviews.Asker(etcd, settings.env, lambda: nullcontext(line))
        self._why = asking.Asker(etcd, settings.env, lambda: nullcontext(line))

    async def overview(self) -> dict[str, Any]:
        """Raises EvenlaneError if none of the nodes answers, too: a table of nothing would be wrong."""
        with clients.explained():
            document = await self._overviews.overview()
        if document["nodes"] and not any(node["answered"] for node in document["nodes"]):
            raise EvenlaneError(self._no_answer(document["nodes"]))
        return document

    def _no_answer(self, nodes: list[dict[str, Any]]) -> str:
        """With what is known of them without their answer: their records in etcd say what keeps them from it."""
        asked = "the only node" if len(nodes) == 1 else f"any of the {len(nodes)} nodes"
        silence = (
            f"no answer came within {overviews.TIMEOUT_S:g} s from {asked} of environment {self._env!r}: what waits is"
            " known only there"
        )
        return "; ".join([silence, *sentences({node["id"]: node["troubles"] for node in nodes})])

    async def why(self, project: str) -> dict[str, Any]:
        with clients.explained():
            return await self._why.why(project)

    async def switch(self, project: str, verb: str) -> str:
        """As `evenlane topics pause` and `resume`, which are left to deal with a topic that was deleted or drains."""
        with clients.explained():
            wishes = Wishes(self._etcd, self._env, await agreed(self._etcd, self._env), self._by)
            standing = await switch(wishes, project, STATES[verb], f"top: {verb}")
        if not standing.accepted:
            return f"{project}: the wish to {verb} it is written, and not in force: {standing.why_not}"
        return f"{project}: {STATES[verb]}, accepted"


@asynccontextmanager
async def reached(settings: Settings, by: str) -> AsyncIterator[Reached]:
    """Raises ConfigError, Unreachable."""
    async with AsyncExitStack() as opened:
        etcd = clients.etcd(settings)
        opened.push_async_callback(etcd.close)
        line = clients.connection(settings, "evenlane top")
        opened.push_async_callback(line.close)
        await line.open()
        yield Reached(settings, etcd, line, by)
