"""DeadLetters: shows, replays and drops dead letters from a program, like `evenlane dlq`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from evenlane.engine.admin.dead_letters.client import opened
from evenlane.engine.base import log_setup
from evenlane.engine.base.config.overrides import override

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from evenlane.engine.admin.dead_letters.client import DeadLetterClient
    from evenlane.engine.base.config.settings import Settings


class DeadLetters:
    """Connects to the dead letters: `async with DeadLetters() as letters: await letters.replay("acme")`.

    Omitted arguments come from the settings; without a `subscription` there, it is the unnamed one. `letters` has the
    methods `oldest`, `get`, `replay`, `drop`, `count`, `keep` and `kept`: see
    [dead letters](dead-letters.md#from-python). Entering raises Unreachable, ConfigError, and EvenlaneError if there is
    no such environment or subscription.
    """

    def __init__(
        self,
        nats: str | Sequence[str] | None = None,
        etcd: str | Sequence[str] | None = None,
        env: str | None = None,
        *,
        subscription: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        log_setup.to_stderr()
        self._settings = override(settings, {"nats": nats, "etcd": etcd, "env": env, "subscription": subscription})
        self._open = AsyncExitStack()

    async def __aenter__(self) -> DeadLetterClient:
        return await self._open.enter_async_context(opened(self._settings))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()
