"""Runs a command's own servers, with a progress indicator while they start."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from evenlane.engine.cli.progress import ProgressDisplay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.runtime.embedded.pair import Servers


@asynccontextmanager
async def run_servers(servers: Servers) -> AsyncIterator[None]:
    """Run the servers until the block ends."""
    async with AsyncExitStack() as opened:
        with ProgressDisplay("starting NATS and etcd"):
            await opened.enter_async_context(servers)
        yield
