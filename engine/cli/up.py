"""`evenlane up`: real servers on this machine, and a node if a handler is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.options import Given, common
from engine.cli.run import Concurrency, on_signals, run_loop
from engine.errors import EvenlaneError

if TYPE_CHECKING:
    import asyncio

    from engine.servers import Servers
    from engine.settings import Settings

_Port = Annotated[int | None, typer.Option(metavar="N", min=1, max=65535)]


@common
def up(
    given: Given,
    *,
    data_dir: Annotated[Path, typer.Option(metavar="D", help="Where messages, keys and logs stay.")] = Path(
        ".evenlane"
    ),
    nats_port: _Port = None,
    etcd_port: _Port = None,
    partitions: Annotated[str | None, typer.Option(metavar="P", help="Of a new cluster.")] = None,
    handler: Annotated[
        str | None, typer.Option("--handler", metavar="MODULE:FUNCTION", help="Run a node, too.")
    ] = None,
    concurrency: Concurrency = None,
) -> None:
    """Start NATS and etcd on this machine, until SIGINT or SIGTERM; with --handler, a node as well.

    Prints one line on stdout when all answer. The data directory is used again the next time.

    Example:
      evenlane up --data-dir /tmp/lanes
      evenlane up --handler shop.jobs:handle --nats-port 4222 --etcd-port 2379
    """
    settings = given.load(partitions=partitions, concurrency=concurrency).settings
    from engine import packages
    from engine.logs import setup

    setup(settings.log_format, settings.log_level)
    packages.check()
    call = None
    if handler is not None:
        from engine.node.handlers import load

        call = load(handler)
    from engine.servers import Servers

    servers = Servers(data_dir, nats_port=nats_port, etcd_port=etcd_port)
    run_loop(_up(servers, settings, call))


async def _up(servers: Servers, settings: Settings, call: object) -> None:
    import asyncio
    import contextlib
    from dataclasses import replace

    stop = asyncio.Event()
    on_signals(stop.set)
    async with servers:
        settings = replace(settings, nats=(servers.nats.url,), etcd=(servers.etcd.endpoint,))
        dead = asyncio.create_task(servers.wait())
        stopping = asyncio.create_task(stop.wait())
        working = asyncio.create_task(_work(servers, settings, call, stop))
        try:
            await asyncio.wait({dead, stopping, working}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() or working.done():
                await working
            elif dead.done():
                raise EvenlaneError(dead.result())
        finally:
            for task in (dead, stopping, working):
                task.cancel()
            with contextlib.suppress(Exception):
                await asyncio.gather(dead, stopping, working, return_exceptions=True)


async def _work(servers: Servers, settings: Settings, call: object, stop: asyncio.Event) -> None:
    """A node if there is a handler, else only what lets producers and `topics` work."""
    import asyncio

    from engine.engine import Engine

    line = f"ready nats={servers.nats.url} etcd={servers.etcd.endpoint}"
    told: list[str] = []

    def ready(_partitions: int) -> None:
        if not told:
            told.append(line)
            print(line, flush=True)  # noqa: T201

    async def ignore(_message: object) -> None:
        """Never called: a node that isn't run takes nothing over."""

    engine = Engine(call if callable(call) else ignore, settings=settings, on_ready=ready)
    async with engine:
        if call is None:
            await engine.prepare()
            ready(0)
            await stop.wait()
            return
        waiting = asyncio.create_task(stop.wait())
        waiting.add_done_callback(lambda _: engine.stop())
        try:
            await engine.run()
        finally:
            waiting.cancel()
