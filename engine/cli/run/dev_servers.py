"""Runs the servers of `up`, with a progress indicator while they start."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.cli.progress import ProgressDisplay
from evenlane.engine.runtime.embedded.etcd import CORRUPTING_VERSIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.runtime.embedded.pair import Servers

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def run_servers(servers: Servers) -> AsyncIterator[None]:
    """Run the servers until the block ends. One line warns of an etcd that must not be killed."""
    async with AsyncExitStack() as opened:
        with ProgressDisplay("starting NATS and etcd"):
            await opened.enter_async_context(servers)
        if (version := servers.etcd.version) in CORRUPTING_VERSIONS:
            _log.warning(
                "the embedded etcd may corrupt its data when it is killed: for data that matters, run 3.5.3 or newer",
                version=version,
            )
        yield
