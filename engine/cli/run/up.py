"""Command `evenlane up`: runs real servers on this machine, and a node if a handler is given."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlane.engine.base.extras import require_extra
from evenlane.engine.cli.options import CommonOptions, common
from evenlane.engine.cli.run.command import APP, Concurrency, FallbackSpec, HttpPort, Processes, prepare
from evenlane.engine.cli.run.http_options import addresses, http_ports, http_token
from evenlane.engine.cli.run.lifeline import NodeReady
from evenlane.engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence

    from evenlane.engine.base.config.settings import LoadedSettings, Settings
    from evenlane.engine.runtime.embedded.pair import Servers

    _Work = Callable[[Servers, Settings, asyncio.Event], Coroutine[object, object, bool]]

_NatsPort = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=65535, help="Port of NATS; any free one if left out.")
]
_EtcdPort = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=65535, help="Port of etcd; any free one if left out.")
]
_MqttPort = Annotated[int | None, typer.Option(metavar="N", min=1, max=65535, help="Port of MQTT; none if left out.")]
_DataDir = Annotated[Path, typer.Option(metavar="D", help="Folder for messages, keys and logs.")]
_Partitions = Annotated[
    str | None, typer.Option("--partitions", metavar="P", help="Number of partitions of a new cluster.")
]
_Handler = Annotated[
    str | None, typer.Option("--handler", metavar="MODULE:NAME", help=f"Also run a node with this handler, {APP}.")
]
_Reload = Annotated[
    bool, typer.Option("--reload", help="For development: restart the node when a Python file changes.")
]


@common
def up(
    given: CommonOptions,
    *,
    data_dir: _DataDir = Path(".evenlane"),
    nats_port: _NatsPort = None,
    etcd_port: _EtcdPort = None,
    mqtt_port: _MqttPort = None,
    partitions: _Partitions = None,
    handler: _Handler = None,
    fallback: FallbackSpec = None,
    concurrency: Concurrency = None,
    processes: Processes = None,
    http_port: HttpPort = None,
    reload: _Reload = False,
) -> None:
    """Start NATS and etcd on this machine, until SIGINT or SIGTERM; with --handler, a node as well.

    Prints one line on stdout when all of them answer. The next start finds its data in the same data directory. With
    --processes N it runs N nodes, each as a process. Ignores servers that settings name. With --http-port and without
    http_token_file it writes a token to the data directory, which allows changes on the status page. If one of its
    servers ends, `up` ends as well, with exit code 1. --reload watches the Python files of the current folder and of
    the handler's, tests and scripts included; it restarts only the node, and waits for a broken module to be saved
    again. With it a drain takes at most 2 s, also at the end.

    Example:
      evenlane up --data-dir /tmp/lanes
      evenlane up --handler shop.jobs:handle --nats-port 4222 --etcd-port 2379
      evenlane up --handler shop:app --reload
      evenlane up --handler shop.jobs:handle --processes 4 --http-port 8080
    """
    require_extra("servers", "evenlane up needs the servers")
    loaded = given.load(partitions=partitions, concurrency=concurrency, http_port=http_port, subscription=None)
    settings = loaded.settings
    _check_servers(given, loaded)
    _check_use(
        handler, {"processes": processes, "http-port": http_port, "fallback": fallback, "reload": reload or None}
    )
    if reload and processes is not None:
        raise ConfigError("--reload restarts a single node: leave out --processes, or --reload")
    ports = http_ports(settings.http_port, processes or 1)
    _check_apart({"nats-port": [nats_port], "etcd-port": [etcd_port], "mqtt-port": [mqtt_port], "http-port": ports})
    prepare(settings)
    work: _Work
    flags = given._asdict() | {"handler": handler, "fallback": fallback, "concurrency": concurrency}
    if handler is not None and reload:
        work = partial(_run_reloaded, handler=handler, ports=ports, flags=flags)
    elif processes is not None:
        work = partial(_run_nodes, count=processes, ports=ports, flags=flags)
    else:
        work = _node_of(handler, fallback)
    from evenlane.engine.runtime.embedded.pair import Servers
    from evenlane.engine.runtime.run_loop import run_loop

    servers = Servers(data_dir, nats_port=nats_port, etcd_port=etcd_port, mqtt_port=mqtt_port)
    runs_handlers = handler is not None and processes is None and not reload
    if not run_loop(_up(servers, settings, ports, work, data_dir, runs_handlers=runs_handlers)):
        raise typer.Exit(1)


_FOR_A_HANDLER = {
    "processes": "which the processes would run",
    "http-port": "whose node would serve it",
    "fallback": "whose failures it would take",
    "reload": "whose node it would restart",
}


def _check_servers(given: CommonOptions, loaded: LoadedSettings) -> None:
    """Raise ConfigError for options and settings that its own servers can't follow. Addresses in settings are for other
    commands, and ignored.
    """
    for server, option, url in (
        ("nats", "nats", given.nats), ("nats", "store", given.store), ("etcd", "etcd", given.etcd),
    ):  # fmt: skip
        if url is not None:
            raise ConfigError(
                f"--{option} names a server that is already running, but `up` starts its own: leave it out"
                f" (--{server}-port chooses the port), or use `evenlane run` with existing servers"
            )
    for name in ("etcd_ca", "etcd_cert", "etcd_user"):
        if getattr(loaded.settings, name) is not None:
            raise ConfigError(
                f"{name} ({loaded.origins[name]}) is for an etcd with TLS or users, and `up` starts one without: leave"
                " it out, for example with another --config"
            )


def _check_use(handler: str | None, node_options: Mapping[str, object]) -> None:
    """Raise ConfigError if one of these flags is given without a handler."""
    for flag, value in node_options.items():
        if value is not None and handler is None:
            raise ConfigError(f"--{flag} is given without --handler, {_FOR_A_HANDLER[flag]}")


def _check_apart(chosen: Mapping[str, Sequence[int | None]]) -> None:
    """Raise ConfigError if two flags choose the same port."""
    flags: dict[int, str] = {}
    for flag, ports in chosen.items():
        for port in ports:
            if port and (other := flags.setdefault(port, flag)) != flag:
                raise ConfigError(f"--{other} and --{flag} both take port {port}: give each its own")


def _node_of(handler: str | None, fallback: str | None) -> _Work:
    from evenlane.engine.node.handlers.handler import load
    from evenlane.engine.runtime.process_end import limit_end

    if handler is not None:
        limit_end()
    call = load(handler) if handler is not None else None
    return partial(_run_node, call=call, fallback=load(fallback, "fallback") if fallback is not None else None)


async def _up(
    servers: Servers, settings: Settings, ports: Sequence[int], work: _Work, data_dir: Path, *, runs_handlers: bool
) -> bool:
    import asyncio
    import contextlib
    from dataclasses import replace

    from evenlane.engine.cli.run.dev_servers import run_servers
    from evenlane.engine.http.server.listen import check
    from evenlane.engine.runtime.process_end import interrupt, leave_at_once
    from evenlane.engine.runtime.serve import on_signals

    await check(settings.http_host, ports)
    stop = asyncio.Event()
    # A handler may block the loop; without one, an exception ends the servers in order.
    on_signals(stop.set, leave_at_once if runs_handlers else interrupt)
    async with run_servers(servers):
        settings = replace(settings, nats=(servers.nats.url,), store=None, etcd=(servers.etcd.endpoint,))
        if ports and settings.http_token_file is None:
            settings = replace(settings, http_token_file=http_token(data_dir))
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


def _line(servers: Servers, nodes: Iterable[NodeReady]) -> str:
    mqtt = f" mqtt={servers.nats.mqtt}" if servers.nats.mqtt else ""
    return f"ready nats={servers.nats.url} etcd={servers.etcd.endpoint}{mqtt}{addresses(nodes)}"


async def _run_nodes(
    servers: Servers, settings: Settings, stop: asyncio.Event, *, count: int, ports: Sequence[int],
    flags: dict[str, object],
) -> bool:  # fmt: skip
    """Run nodes as processes; return whether all of them ended clean."""
    from evenlane.engine.cli.run.lease_revoker import Revoker
    from evenlane.engine.cli.run.supervisor import Supervisor, arguments
    from evenlane.engine.cluster import connections

    async def ready(ready_nodes: Mapping[str, NodeReady]) -> None:
        print(_line(servers, ready_nodes.values()), flush=True)  # noqa: T201

    nodes = Supervisor(
        settings.node_id(), count, arguments(_at(servers, flags)), environ=_environ(settings),
        drain_grace_s=settings.drain_grace, http_ports=ports,
        revoke=Revoker(lambda: connections.etcd(settings)).revoke,
    )  # fmt: skip
    async with _stopping(stop, nodes.stop):
        return await nodes.run(ready)


async def _run_reloaded(
    servers: Servers, settings: Settings, stop: asyncio.Event, *, handler: str, ports: Sequence[int],
    flags: dict[str, object],
) -> bool:  # fmt: skip
    """Run a node in a process that changes of files replace."""
    from evenlane.engine.cli.run.lease_revoker import Revoker
    from evenlane.engine.cli.run.reloader import Reloader, watched_folders
    from evenlane.engine.cli.run.supervisor import arguments
    from evenlane.engine.cluster import connections

    def ready(node: NodeReady) -> None:
        print(_line(servers, [node]), flush=True)  # noqa: T201

    http = {"http_port": next(iter(ports), None)}
    node = Reloader(
        settings.node_id(), arguments(_at(servers, flags | http)), watched_folders(handler, Path.cwd()),
        environ=_environ(settings), revoke=Revoker(lambda: connections.etcd(settings)).revoke,
    )  # fmt: skip
    async with _stopping(stop, node.stop):
        await node.run(ready)
    return True


@asynccontextmanager
async def _stopping(stop: asyncio.Event, call: Callable[[], None]) -> AsyncIterator[None]:
    """Call `call` if `stop` is set before the block ends."""
    import asyncio

    waiting = asyncio.create_task(stop.wait())
    waiting.add_done_callback(lambda done: None if done.cancelled() else call())
    try:
        yield
    finally:
        waiting.cancel()


def _at(servers: Servers, flags: dict[str, object]) -> dict[str, object]:
    """Return the flags of a node on these servers."""
    return flags | {"nats": servers.nats.url, "etcd": servers.etcd.endpoint}


def _environ(settings: Settings) -> dict[str, str]:
    """Return the settings of a node that have no flag."""
    environ = {} if settings.partitions is None else {"EVENLANE_PARTITIONS": str(settings.partitions)}
    if settings.http_token_file is not None:
        environ["EVENLANE_HTTP_TOKEN_FILE"] = str(settings.http_token_file)
    return environ


async def _run_node(servers: Servers, settings: Settings, stop: asyncio.Event, *, call: Any, fallback: Any) -> bool:
    """Run a node if there is a handler, otherwise only prepare the streams for producers and `topics`."""
    import asyncio

    from evenlane.engine.runtime.engine import Engine

    ready_lines: list[NodeReady] = []

    def ready(partitions: int, generation: int = 0) -> None:
        if not ready_lines:
            ready_lines.append(NodeReady(partitions, generation, engine.settings.cluster, engine.http.address))
            print(_line(servers, ready_lines), flush=True)  # noqa: T201

    async def ignore(_message: object) -> None:
        """Never called: a node that isn't run takes over no partitions."""

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
