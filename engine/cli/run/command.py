"""Command `evenlane run`: runs a node until SIGTERM, or several as processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, cast

import typer

from evenlane.engine.base.config.values import whole
from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.options import CommonOptions, common
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cli.run.lifeline import NodeReady

# While nodes start together, partitions move between them; the ready line waits no longer than this for the moves.
_SETTLED_WITHIN_S = 10.0
_ANYWHERE, _FOR_EACH_CORE = 64, 8  # limits on processes, of which each can use a core and takes some 60 MB

APP = "MODULE:FUNCTION or MODULE:APP"
_Target = Annotated[str | None, typer.Argument(metavar="MODULE:NAME", help=f"The same as --handler: {APP}.")]
_HandlerSpec = Annotated[
    str | None,
    typer.Option(
        "--handler", metavar="MODULE:NAME", help=f"Handler of messages, {APP}. Topics with push are pushed instead."
    ),
]
FallbackSpec = Annotated[
    str | None,
    typer.Option("--fallback", metavar="MODULE:FUNCTION", help="Handler of messages that would become dead letters."),
]
Concurrency = Annotated[
    str | None, typer.Option("--concurrency", metavar="W", help="Slots: handlers that run at the same time.")
]
HttpPort = Annotated[
    str | None,
    typer.Option("--http-port", metavar="N", help="Serve health, metrics and the API; with --processes: N, N+1, ..."),
]


def _count(text: str) -> int:
    try:
        count = int(cast("int", whole(1, 1024)(text)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    cores = os.cpu_count() or 1
    if count > (most := max(_ANYWHERE, _FOR_EACH_CORE * cores)):
        raise typer.BadParameter(
            f"{count:,} are too many for one machine with {format_count(cores, 'core')}: at most {most:,} can run here,"
            " and nodes on other machines share the work"
        )
    return count


Processes = Annotated[
    int | None, typer.Option("--processes", metavar="N", parser=_count, help="Run N nodes, each as a process.")
]
_Node = Annotated[str | None, typer.Option("--node", metavar="ID", help="Id of the node.")]
_Subscription = Annotated[
    str | None, typer.Option("--subscription", metavar="NAME", help="Handle the messages for this subscription.")
]
_LeaseTtl = Annotated[str | None, typer.Option("--lease-ttl", metavar="S", help="Time to live of the node's lease.")]
_DrainGrace = Annotated[str | None, typer.Option("--drain-grace", metavar="S", help="Longest time of a drain.")]
_BlockLimit = Annotated[
    str | None,
    typer.Option(
        "--block-limit", metavar="S", help="A process that is blocked for longer ends; at least 1, or 0 for never."
    ),
]
_StartTimeout = Annotated[
    str | None, typer.Option("--start-timeout", metavar="S", help="Longest wait for servers at the start.")
]
_Lifeline = Annotated[int | None, typer.Option("--lifeline", hidden=True, min=3)]
_Claims = Annotated[int | None, typer.Option("--claims", hidden=True, min=3)]


@common
def run(
    given: CommonOptions,
    target: _Target = None,
    *,
    handler: _HandlerSpec = None,
    fallback: FallbackSpec = None,
    node: _Node = None,
    subscription: _Subscription = None,
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
    """Run a node: handle the messages of the environment until SIGTERM, then drain. A second signal ends it at once.

    Every node pushes the topics with push by HTTP; a node that does nothing else needs --handler
    evenlane.engine.push:handle. Prints one line on stdout once it serves or is on standby, with its HTTP address
    if there is one. Logs go to stderr. With --processes N it runs nodes ID-0 to ID-(N-1), prints one line when all are
    ready, and restarts nodes that end unexpectedly.

    Example:
      evenlane run shop:app
      evenlane run --handler shop.jobs:handle
      evenlane run --handler shop.jobs:handle --node worker-1 --concurrency 200
      evenlane run --handler shop.jobs:handle --node worker-1 --processes 4 --http-port 8080
      evenlane run --handler shop.jobs:handle --fallback shop.jobs:give_up
    """
    handler = _choose(target, handler)
    flags: dict[str, object] = {
        "concurrency": concurrency, "lease_ttl": lease_ttl, "drain_grace": drain_grace, "block_limit": block_limit,
        "start_timeout": start_timeout, "subscription": subscription,
    }  # fmt: skip
    loaded = given.load(node=node, http_port=http_port, **flags)
    settings = loaded.settings
    prepare(settings)
    if processes is not None and settings.is_in_memory:
        raise ConfigError(
            f"store ({loaded.origins['store']}): memory:// lives in the memory of one process, and --processes starts"
            " others: use only one of them"
        )
    if processes is None:
        clean = _run_one(handler, fallback, settings, lifeline, claims)
    else:
        clean = _run_many(settings, processes, {"handler": handler, "fallback": fallback} | given._asdict() | flags)
    if not clean:
        raise typer.Exit(1)


def _choose(target: str | None, handler: str | None) -> str:
    """Return the only handler that is given, as argument or as option. Raises ConfigError."""
    if target is not None and handler is not None:
        raise ConfigError(
            f"the handler is given twice, as {target!r} and as --handler {handler!r}: leave out one of them"
        )
    if (chosen := target if target is not None else handler) is None:
        raise ConfigError("the handler is missing: give it as MODULE:FUNCTION or MODULE:APP, for example shop:app")
    return chosen


def prepare(settings: Settings) -> None:
    """Set up logs as configured."""
    from evenlane.engine.base.log_setup import setup

    setup(settings.log_format, settings.log_level)


def _run_one(handler: str, fallback: str | None, settings: Settings, lifeline: int | None, claims: int | None) -> bool:
    from structlog.contextvars import bind_contextvars

    from evenlane.engine.cli.progress import ProgressDisplay
    from evenlane.engine.runtime.node_process import run_node
    from evenlane.engine.runtime.process_end import limit_end

    bind_contextvars(node=settings.node_id())  # distinguishes its logs from those of other nodes
    line = claimant = None
    if lifeline is not None:
        from evenlane.engine.cli.run.lifeline import Lifeline

        line = Lifeline(lifeline, settings.drain_grace)
    if claims is not None:
        from evenlane.engine.cli.run.claims import Claimant

        claimant = Claimant(claims)
    from evenlane.engine.cli.run.lifeline import NodeReady
    from evenlane.engine.node.handlers.handler import load
    from evenlane.engine.runtime.engine import Engine

    limit_end()
    call = load(handler)
    instead = load(fallback, "fallback") if fallback is not None else None
    ready_lines: list[NodeReady] = []

    def ready(partitions: int, generation: int = 0) -> None:
        if ready_lines:
            return
        now = NodeReady(partitions, generation, engine.settings.cluster, engine.http.address)
        ready_lines.append(now)
        if line is not None:
            line.ready(now)
        else:
            _print_ready(engine.id, now, ready_lines)

    engine = Engine(call, fallback=instead, settings=settings, on_ready=ready, supervision=claimant)
    draining = ProgressDisplay("draining")
    if line is None:
        return run_node(engine, draining=draining)
    return run_node(engine, joined=line.report_joined, draining=draining, on_stop=line.note_stop)


def _run_many(settings: Settings, count: int, flags: dict[str, object]) -> bool:
    from evenlane.engine.cli.run.http_options import http_ports
    from evenlane.engine.cli.run.lease_revoker import Revoker
    from evenlane.engine.cli.run.supervisor import Supervisor, arguments
    from evenlane.engine.cluster import connections
    from evenlane.engine.http.server.listen import check
    from evenlane.engine.runtime.run_loop import run_loop
    from evenlane.engine.runtime.serve import on_signals

    node = settings.node_id()

    async def work() -> bool:
        ports = http_ports(settings.http_port, count)
        revoker = Revoker(lambda: connections.etcd(settings))
        nodes = Supervisor(
            node, count, arguments(flags), drain_grace_s=settings.drain_grace, http_ports=ports, revoke=revoker.revoke
        )
        await check(settings.http_host, ports)
        on_signals(nodes.stop)
        return await nodes.run(print_ready)

    async def print_ready(ready_nodes: Mapping[str, NodeReady]) -> None:
        _print_ready(node, await _join_ready(settings, ready_nodes), ready_nodes.values())

    return run_loop(work())


async def _join_ready(settings: Settings, ready_nodes: Mapping[str, NodeReady]) -> NodeReady:
    """Return what the nodes own together once all are ready, otherwise the sum of their own reports."""
    from evenlane.engine.cli.run.lifeline import NodeReady
    from evenlane.engine.cli.run.readiness import wait_until_ready
    from evenlane.engine.cluster import connections
    from evenlane.ring.coordination.ports import CoordinationError

    coordination = connections.etcd(settings)
    each = ready_nodes.values()
    cluster = next(iter(each)).cluster
    try:
        return await wait_until_ready(coordination, cluster, ready_nodes, _SETTLED_WITHIN_S)
    except CoordinationError:
        return NodeReady(sum(one.partitions for one in each), max(one.generation for one in each), cluster)
    finally:
        await coordination.close()


def _print_ready(node: str, ready: NodeReady, each: Iterable[NodeReady]) -> None:
    from evenlane.engine.runtime.node_process import ready_line

    print(ready_line(node, ready.partitions, ready.generation, (one.http for one in each)), flush=True)  # noqa: T201
