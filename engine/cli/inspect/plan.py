"""Command `evenlane plan`: shows which node has which partitions, and simulates fleets of other sizes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.inspect.plan_size import size
from evenlane.engine.cli.options import CommonOptions, Json, common_of_subscription, number
from evenlane.engine.cli.output import CommandGroup, new_app, print_json, print_table, with_examples
from evenlane.engine.errors import ConfigError, hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.admin.plan.simulate import Change
    from evenlane.ring.hashing import Layout

_MOST_NAMED = 10  # unowned partitions, in output for people


class _ShowByDefault(CommandGroup):
    """Makes `show` the default command: `evenlane plan --json` means `evenlane plan show --json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in {"-h", "--help"}):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = new_app("""Show which node owns which partitions. `plan` alone is `plan show`, with the same options.

    Example:
      evenlane plan
      evenlane plan --json
      evenlane plan simulate --nodes 10 --projects 1000
      evenlane plan size --qps 1000 --handler-ms 100
    """)
app.info.cls = _ShowByDefault


@app.command()
@common_of_subscription
def show(given: CommonOptions, *, as_json: Json = False) -> None:
    """Show the nodes of a subscription with their partitions, its leader, and partitions without an owner.

    Reads only etcd. PLANNED is the number of partitions that the plan gives a node, OWNS the number that it has at this
    moment; QPS and QUEUES are those of the planned ones, DONE is the newest plan generation that it has carried out.

    Example:
      evenlane plan
      evenlane plan show --env sandbox --json
      evenlane plan --subscription audit
    """
    settings = given.load().settings
    from evenlane.engine.base.log_setup import setup
    from evenlane.engine.runtime.run_loop import run_loop

    setup(settings.log_format, settings.log_level)
    from evenlane.engine.admin.plan import view

    document, problems = run_loop(view.read(settings))
    _warn(f"{problem} (skipped)" for problem in problems)
    if document["partitions"] < 2 * len(document["nodes"]):
        from evenlane.engine.admin.plan.simulate import explain_too_few

        _warn([explain_too_few(document["partitions"], len(document["nodes"]))])
    if document["handlers_differ"]:
        _warn([document["handlers_differ"]])
    if as_json:
        print_json(document)
    else:
        _print_plan(document)


@app.command()
def simulate(
    *,
    nodes: Annotated[
        int, typer.Option(parser=number, metavar="N", help="Number of nodes before the change.", show_default=False)
    ],
    projects: Annotated[
        int,
        typer.Option(
            parser=number, metavar="K", help="Number of projects; their quotas are random.", show_default=False
        ),
    ],
    partitions: Annotated[int, typer.Option(parser=number, metavar="P", help="Partitions of the environment.")] = 128,
    join: Annotated[bool, typer.Option("--join", help="Simulate a node that joins.")] = False,
    leave: Annotated[bool, typer.Option("--leave", help="Simulate a node that leaves.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Simulate a rolling restart, and the gathering after it.")
    ] = False,
    seed: Annotated[int, typer.Option(parser=number, metavar="S", help="The same seed, the same projects.")] = 1,
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="bounded-ring, zones, range, round-robin, or one of another package.")
    ] = "bounded-ring",
    layout: Annotated[
        str, typer.Option(metavar="NAME", help="Which partitions a project has: consecutive or hashed.")
    ] = "hashed",
    zones: Annotated[int, typer.Option(parser=number, metavar="Z", help="Zones that the nodes are in, in turn.")] = 1,
    as_json: Json = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Place the partitions of a made-up environment on nodes; contacts and changes nothing.

    Shows how even the load is (the most loaded node against the mean), how many partitions a change moves against the
    fewest possible, how many nodes work for one project, and how long one plan takes to compute. With --zones, also how
    much of a project is in one zone. With --restart, all nodes leave and come back one after another; the rows
    GATHERED have the figures once the leader has brought neighbouring partitions together. For 300 nodes, the command
    then runs for about two minutes.

    Example:
      evenlane plan simulate --nodes 8 --projects 3000
      evenlane plan simulate --nodes 300 --projects 3000 --partitions 4096 --join --json
      evenlane plan simulate --nodes 50 --projects 3000 --partitions 800 --layout consecutive --restart
    """
    del debug
    change = _choose_change(join=join, leave=leave, restart=restart)
    from evenlane.engine.admin.plan.simulate import Fleet, warnings
    from evenlane.engine.admin.plan.simulate import simulate as simulated

    fleet = Fleet(nodes, projects, partitions, change, seed, strategy, cast("Layout", layout), zones)
    _warn(warnings(fleet))
    from evenlane.engine.cli.progress import ProgressDisplay

    with ProgressDisplay(f"placing {partitions:,} partitions on {nodes:,} nodes"):
        document = simulated(fleet)
    if as_json:
        print_json(document)
    else:
        gathered = {f"gathered_{key}": value for key, value in (document.pop("gathered") or {}).items()}
        figures = (document | gathered).items()
        print_table(("FIGURE", "VALUE"), [(key.replace("_", " "), _words(value)) for key, value in figures])


app.command()(size)
simulate.__doc__ = with_examples(simulate.__doc__)


def _choose_change(**flags: bool) -> Change | None:
    """The change that the flags ask for. Raises ConfigError for several."""
    chosen = [change for change, is_chosen in flags.items() if is_chosen]
    if len(chosen) > 1:
        raise ConfigError(f"--{chosen[0]} and --{chosen[1]} can't be simulated together: use one of them")
    return cast("Change | None", chosen[0] if chosen else None)


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        print(f"evenlane: warning: {sentence}", file=sys.stderr)  # noqa: T201


def _print_plan(document: dict[str, Any]) -> None:
    leader = f"led by {document['leader']}" if document["leader"] else "no leader"
    nodes, count, env, subscription = (document[each] for each in ("nodes", "partitions", "env", "subscription"))
    name = f"subscription {subscription!r} of {env}" if subscription else env
    what = f"{format_count(count, 'partition')}, {format_count(len(nodes), 'node')}"
    print(f"{name}: {what}, generation {document['generation']}, {leader}")  # noqa: T201
    if nodes:
        header = ("NODE", "PLANNED", "OWNS", "QPS", "QUEUES", "DONE", "CPU", "PROJECTS", "IN FLIGHT", "HOST")
        print_table(header, map(_row, nodes))
        for handlers in sorted({node["handlers"] for node in nodes} - {""}):
            print(f"handlers: {handlers}")  # noqa: T201
    else:
        starts = hint("run --handler MODULE:FUNCTION", env, subscription or "")
        print(f"no node is running: {starts} starts one")  # noqa: T201
    unowned = document["unowned"]
    if unowned:
        named = ", ".join(map(str, unowned[:_MOST_NAMED])) + (", ..." if len(unowned) > _MOST_NAMED else "")
        are = "is" if len(unowned) == 1 else "are"
        print(f"{len(unowned)} of {format_count(count, 'partition')} {are} without an owner at this moment: {named}")  # noqa: T201


def _row(node: dict[str, Any]) -> tuple[str, ...]:
    host = f"{node['host'] or '-'}{' (leaving)' if node['leaving'] else ''}"
    return (
        node["id"], str(len(node["partitions"])), str(len(node["owns"])), f"{node['qps']:,.10g}",
        f"{node['queues']:,}", str(node["done_generation"]), f"{node['cpu']:.0%}", f"{node['projects']:,}",
        f"{node['in_flight']:,}", host,
    )  # fmt: skip


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(part)}" for name, part in value.items())
    return "-" if value is None else f"{value:,}" if isinstance(value, int | float) else str(value)
