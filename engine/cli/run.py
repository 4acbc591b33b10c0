"""`evenlane run`: a node until SIGTERM, or several as processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from evenlane.engine.cli.options import Given, common
from evenlane.engine.counted import counted
from evenlane.engine.setting_values import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from evenlane.engine.cli.lifeline import Ready
    from evenlane.engine.engine import Engine
    from evenlane.engine.settings import Settings

# Nodes that start together give partitions to one another; the line that tells of them waits no longer than this.
_SETTLED_WITHIN_S = 10.0
_ANYWHERE, _FOR_EACH_CORE = 64, 8  # processes, of which each can use a core and takes some 60 MB

HandlerSpec = Annotated[
    str,
    typer.Option(
        "--handler", metavar="MODULE:FUNCTION", help="What handles a message. Topics with push are pushed instead."
    ),
]
FallbackSpec = Annotated[
    str | None,
    typer.Option("--fallback", metavar="MODULE:FUNCTION", help="What takes messages instead of the dead letters."),
]
Concurrency = Annotated[str | None, typer.Option("--concurrency", metavar="W", help="Handlers at once.")]
HttpPort = Annotated[
    str | None,
    typer.Option("--http-port", metavar="N", help="Serve health, metrics and the API; with --processes, from N on."),
]


def _count(text: str) -> int:
    try:
        count = int(cast("int", whole(1, 1024)(text)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    cores = os.cpu_count() or 1
    if count > (most := max(_ANYWHERE, _FOR_EACH_CORE * cores)):
        raise typer.BadParameter(
            f"{count:,} are too many for one machine of {counted(cores, 'core')}: {most:,} is the most here, and nodes"
            " on other machines share the work"
        )
    return count


Processes = Annotated[
    int | None, typer.Option("--processes", metavar="N", parser=_count, help="Nodes, each a process.")
]
_Node = Annotated[str | None, typer.Option("--node", metavar="ID", help="The node's name.")]
_LeaseTtl = Annotated[str | None, typer.Option("--lease-ttl", metavar="S", help="Seconds.")]
_DrainGrace = Annotated[str | None, typer.Option("--drain-grace", metavar="S", help="Time a drain may take.")]
_BlockLimit = Annotated[
    str | None,
    typer.Option("--block-limit", metavar="S", help="A process that is blocked for longer ends; at least 1, 0: never."),
]
_StartTimeout = Annotated[str | None, typer.Option("--start-timeout", metavar="S", help="Time to wait for servers.")]
_Lifeline = Annotated[int | None, typer.Option("--lifeline", hidden=True, min=3)]
_Claims = Annotated[int | None, typer.Option("--claims", hidden=True, min=3)]


@common
def run(
    given: Given,
    *,
    handler: HandlerSpec,
    fallback: FallbackSpec = None,
    node: _Node = None,
    concurrency: Concurrency = None,
    processes: Processes = None,
    http_port: HttpPort = None,
    lease_ttl: _LeaseTtl = None,
    drain_grace: _DrainGrace = None,
    block_limit: _BlockLimit = None,
    start_timeout: _StartTimeout = None,
    lifeline: _Lifeline = None,
    claims: _Claims = None,
) -> None:
    """Run a node: handle the messages of the environment until SIGTERM, then drain.

    Topics that have push are pushed by HTTP, by any node; one that does nothing else has --handler
    evenlane.engine.push:handle. Prints one line on stdout once it serves or stands by, with its HTTP address if there
    is one. Logs go to stderr. With --processes N it runs nodes ID-0 to ID-(N-1), prints one line when all are ready,
    and starts again what ends by itself.

    Example:
      evenlane run --handler shop.jobs:handle
      evenlane run --handler shop.jobs:handle --node worker-1 --concurrency 200
      evenlane run --handler shop.jobs:handle --node worker-1 --processes 4 --http-port 8080
      evenlane run --handler shop.jobs:handle --fallback shop.jobs:give_up
    """
    flags: dict[str, object] = {
        "concurrency": concurrency, "lease_ttl": lease_ttl, "drain_grace": drain_grace, "block_limit": block_limit,
        "start_timeout": start_timeout,
    }  # fmt: skip
    settings = given.load(node=node, http_port=http_port, **flags).settings
    prepare(settings)
    if processes is None:
        clean = _run_one(handler, fallback, settings, lifeline, claims)
    else:
        clean = _run_many(settings, processes, {"handler": handler, "fallback": fallback} | given._asdict() | flags)
    if not clean:
        raise typer.Exit(1)


def prepare(settings: Settings) -> None:
    """Logs as the settings want them."""
    from evenlane.engine.logs import setup

    setup(settings.log_format, settings.log_level)


def _run_one(handler: str, fallback: str | None, settings: Settings, lifeline: int | None, claims: int | None) -> bool:
    from asyncio import CancelledError

    from structlog.contextvars import bind_contextvars

    from evenlane.engine.errors import EvenlaneError

    bind_contextvars(node=settings.node_id())  # its logs stand among those of others
    line = claimant = None
    if lifeline is not None:
        from evenlane.engine.cli.lifeline import Lifeline

        line = Lifeline(lifeline, settings.drain_grace)
    if claims is not None:
        from evenlane.engine.cli.claims import Claimant

        claimant = Claimant(claims)
    from evenlane.engine.cli.lifeline import Ready
    from evenlane.engine.engine import Engine
    from evenlane.engine.node.handlers import load

    call = load(handler)
    instead = load(fallback, "fallback") if fallback is not None else None
    told: list[Ready] = []

    def ready(partitions: int, generation: int = 0) -> None:
        if told:
            return
        now = Ready(partitions, generation, engine.http.address)
        told.append(now)
        if line is not None:
            line.ready(now)
        else:
            _print_ready(engine.id, now, told)

    engine = Engine(call, fallback=instead, settings=settings, on_ready=ready, supervision=claimant)
    try:
        clean: bool = run_loop(_guarded(engine, line.joined if line is not None else None))
    except (SystemExit, KeyboardInterrupt, CancelledError, RuntimeError) as error:
        cause = _of_handler(error)
        if not cause or (engine.stopping and isinstance(error, KeyboardInterrupt)):  # (a second Ctrl-C)
            raise
        raise EvenlaneError(f"node {engine.id} stops: {cause}") from error
    return clean


def _of_handler(error: BaseException) -> str:
    """What a handler did that the event loop ended with this error; empty if it was something else."""
    name = type(error).__name__
    if name == "RuntimeError":
        return "a handler stopped the event loop" if "Event loop stopped" in str(error) else ""
    if name == "CancelledError":
        return "a handler cancelled the tasks of the node"
    if name == "SystemExit":  # a handler's own is a failed attempt
        return "a task that a handler left behind raised SystemExit"
    return f"a handler, or a task that it left behind, raised {name}"


def _run_many(settings: Settings, count: int, flags: dict[str, object]) -> bool:
    from evenlane.engine import clients
    from evenlane.engine.cli.http_ports import http_ports
    from evenlane.engine.cli.processes import Supervisor, arguments
    from evenlane.engine.cli.revoking import Revoker
    from evenlane.engine.http.listening import check

    node = settings.node_id()

    async def work() -> bool:
        ports = http_ports(settings.http_port, count)
        revoker = Revoker(lambda: clients.etcd(settings), settings.env)
        nodes = Supervisor(
            node, count, arguments(flags), drain_grace_s=settings.drain_grace, http_ports=ports, revoke=revoker.revoke
        )
        await check(settings.http_host, ports)
        on_signals(nodes.stop)
        return await nodes.run(tell)

    async def tell(said: Mapping[str, Ready]) -> None:
        _print_ready(node, await _together(settings, said), said.values())

    clean: bool = run_loop(work())
    return clean


async def _together(settings: Settings, said: Mapping[str, Ready]) -> Ready:
    """What the nodes have when all of them are ready, or else what each had when it became so."""
    from evenlane.engine import clients
    from evenlane.engine.cli.carried_out import carried_out
    from evenlane.engine.cli.lifeline import Ready
    from evenlane.ring.coordination import CoordinationError

    coordination = clients.etcd(settings)
    try:
        return await carried_out(coordination, settings.env, said, _SETTLED_WITHIN_S)
    except CoordinationError:
        return Ready(sum(each.partitions for each in said.values()), max(each.generation for each in said.values()))
    finally:
        await coordination.close()


def _print_ready(node: str, ready: Ready, each: Iterable[Ready]) -> None:
    from evenlane.engine.cli.http_ports import addresses

    owns = f"partitions={ready.partitions} generation={ready.generation}"
    print(f"ready node={node} {owns}{addresses(each)}", flush=True)  # noqa: T201


async def _guarded(engine: Engine, joined: Callable[[], None] | None) -> bool:
    from evenlane.engine.cli.watchdog import Watchdog

    with Watchdog(engine.settings.block_limit):
        return await serve(engine, joined)


async def serve(engine: Engine, joined: Callable[[], None] | None = None) -> bool:
    """Run a node until SIGTERM or SIGINT; whether it ended clean. `joined` is called once it knows the cluster."""
    import asyncio

    from evenlane.engine.cli.progress import Shown

    entering = asyncio.create_task(engine.__aenter__())
    draining = Shown("draining")

    def stop() -> None:
        engine.stop()
        draining.start()
        entering.cancel()  # harmless once it is done; before, it may be waiting for etcd

    on_signals(stop)
    try:
        await asyncio.wait({entering})
        if entering.cancelled():
            return True
        entering.result()
        try:
            if joined is not None:
                joined()
            return await engine.run()
        finally:
            await engine.__aexit__()
    finally:
        draining.stop()


def on_signals(stop: Callable[[], object]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT; a second SIGTERM changes nothing. A second SIGINT interrupts, even a
    handler that blocks the loop.
    """
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    stopping = interrupted = False

    def once() -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            stop()

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal interrupted
        if stopping or interrupted or loop.is_closed():
            raise KeyboardInterrupt
        interrupted = True
        loop.call_soon_threadsafe(once)

    loop.add_signal_handler(signal.SIGTERM, once)
    signal.signal(signal.SIGINT, interrupt)


def run_loop(work: Any) -> Any:
    """Run a coroutine to its end on uvloop. What goes on after that, against its cancellation, is left behind."""
    from evenlane.engine.cli.loop import run_to_the_end

    return run_to_the_end(work)
