"""Protocol of the node as its routes use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from evenlane.engine.admin.dead_letters.by_error import Selection
    from evenlane.engine.control.topics.switch import State
    from evenlane.engine.http.live_feed import LiveFeed
    from evenlane.engine.http.liveness import Health
    from evenlane.engine.http.puts import PutService
    from evenlane.engine.http.readiness import Readiness
    from evenlane.engine.http.topics import TopicService
    from evenlane.engine.telemetry.prometheus.exposition import Page


class DeadLetters(Protocol):
    """Dead letters of one subscription. Each method raises EvenlaneError."""

    async def list(self, project: str, limit: int, error: str | None) -> dict[str, Any]: ...

    async def errors(self, project: str) -> dict[str, Any]: ...

    async def show(self, project: str, sequence: int) -> dict[str, Any]: ...

    async def replay(self, project: str, sequence: int | None, selection: Selection, by: str) -> dict[str, Any]: ...

    async def drop(self, project: str, sequence: int | None, selection: Selection, by: str) -> dict[str, Any]: ...


class NodeApi(Protocol):
    """Requests to the node. The methods after `metrics` raise EvenlaneError. `subscription` is that of a request: None
    for the node's own, empty for the unnamed one.
    """

    @property
    def watching(self) -> LiveFeed: ...

    async def health(self) -> Health: ...

    async def readiness(self) -> Readiness: ...

    async def metrics(self, accept: str) -> Page: ...

    async def why(
        self, project: str, priority: str | None, within: float | None, *, positions: bool, subscription: str | None
    ) -> dict[str, Any]: ...

    async def overview(self, subscription: str | None) -> bytes: ...

    async def dead_letters(self, subscription: str | None) -> DeadLetters: ...

    async def change_state(self, project: str, state: State, by: str) -> dict[str, Any]: ...

    @property
    def puts(self) -> PutService: ...

    @property
    def topics(self) -> TopicService: ...
