"""`evenlane up`: real servers on this machine, and a node if a handler is given."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.options import Given, common
from engine.cli.run import Concurrency, FallbackSpec, HttpPort, Processes, on_signals, run_loop
from engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from engine.servers import Servers
    from engine.settings import Settings

    _Work = Callable[[Servers, Settings, asyncio.Event], Coroutine[object, object, bool]]

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
    fallback: FallbackSpec = None,
    concurrency: Concurrency = None,
    processes: Processes = None,
    http_port: HttpPort = None,
) -> None:
    """Start NATS and etcd on this machine, until SIGINT or SIGTERM; with --handler, a node as well.

    Prints one line on stdout when all answer. The data directory is used again the next time. With --processes N
    there are N nodes, each a process of its own.

    Example:
      evenlane up --data-dir /tmp/lanes
      evenlane up --handler shop.jobs:handle --nats-port 4222 --etcd-port 2379
      evenlane up --handler shop.jobs:handle --processes 4 --http-port 8080
    """
    settings = given.load(partitions=partitions, concurrency=concurrency, http_port=http_port).settings
    if processes is not None and handler is None:
        raise ConfigError("--processes is given without --handler, which the processes would run")
    if http_port is not None and handler is None:
        raise ConfigError("--http-port is given without --handler, whose node would serve it")
    if fallback is not None and handler is None:
        raise ConfigError("--fallback is given without --handler, whose failures it would take")
    from engine import packages
    from engine.logs import setup

    setup(settings.log_format, settings.log_level)
    packages.check()
    work: _Work
    if processes is not None and handler is not None:
        work = partial(_nodes, count=processes, flags={
            "handler": handler, "fallback": fallback, "env": given.env, "config": given.config,
            "concurrency": concurrency,
        })  # fmt: skip
    else:
        from engine.node.handlers import load

        call = load(handler) if handler is not None else None
        work = partial(_node, call=call, fallback=load(fallback, "fallback") if fallback is not None else None)
    from engine.servers import Servers

    servers = Servers(data_dir, nats_port=nats_port, etcd_port=etcd_port)
    if not run_loop(_up(servers, settings, work)):
        raise typer.Exit(1)


async def _up(servers: Servers, settings: Settings, work: _Work) -> bool:
    import asyncio
    import contextlib
    from dataclasses import replace

    stop = asyncio.Event()
    on_signals(stop.set)
    async with servers:
        settings = replace(settings, nats=(servers.nats.url,), etcd=(servers.etcd.endpoint,))
        dead = asyncio.create_task(servers.wait())
        stopping = asyncio.create_task(stop.wait())
        working = asyncio.create_task(work(servers, settings, stop))
        try:
            await asyncio.wait({dead, stopping, working}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() or working.done():
                return await working
            raise EvenlaneError(dead.result())
        finally:
            for task in (dead, stopping, working):
                task.cancel()
            with contextlib.suppress(Exception):
                await asyncio.gather(dead, stopping, working, return_exceptions=True)


def _line(servers: Servers, http: str | None = None) -> str:
    return f"ready nats={servers.nats.url} etcd={servers.etcd.endpoint}" + (f" http={http}" if http else "")


async def _nodes(
    servers: Servers, settings: Settings, stop: asyncio.Event, *, count: int, flags: dict[str, object]
) -> bool:
    """Nodes as processes; whether all of them ended clean."""
    import asyncio

    from engine.cli.processes import Supervisor, arguments
    from engine.http.address import url

    http = url(settings.http_host, settings.http_port) if settings.http_port else None  # 0: each on one of its own

    async def ready(_said: object) -> None:
        print(_line(servers, http), flush=True)  # noqa: T201

    flags = flags | {"nats": servers.nats.url, "etcd": servers.etcd.endpoint}
    partitions = {} if settings.partitions is None else {"EVENLANE_PARTITIONS": str(settings.partitions)}
    nodes = Supervisor(
        settings.node_id(), count, arguments(flags), environ=partitions, drain_grace_s=settings.drain_grace,
        http_port=settings.http_port,
    )  # fmt: skip
    waiting = asyncio.create_task(stop.wait())
    waiting.add_done_callback(lambda _: nodes.stop())
    try:
        return await nodes.run(ready)
    finally:
        waiting.cancel()


async def _node(servers: Servers, settings: Settings, stop: asyncio.Event, *, call: Any, fallback: Any) -> bool:
    """A node if there is a handler, else only what lets producers and `topics` work."""
    import asyncio

    from engine.engine import Engine

    told: list[str] = []

    def ready(_partitions: int, _generation: int = 0) -> None:
        if not told:
            told.append(_line(servers, engine.http.address))
            print(told[0], flush=True)  # noqa: T201

    async def ignore(_message: object) -> None:
        """Never called: a node that isn't run takes nothing over."""

    engine = Engine(call or ignore, fallback=fallback, settings=settings, on_ready=ready)
    async with engine:
        if call is None:
            await engine.prepare()
            ready(0)
            await stop.wait()
            return True
        waiting = asyncio.create_task(stop.wait())
        waiting.add_done_callback(lambda _: engine.stop())
        try:
            await engine.run()
            return True
        finally:
            waiting.cancel()
