"""Command `evenlane streams`: shows on how many servers the streams are, and changes that."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated

import typer

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.options import CommonOptions, Json, common, number
from evenlane.engine.cli.output import new_app, print_json, print_table

if TYPE_CHECKING:
    from evenlane.engine.core.replication_port import StreamReplicas

_MOST = 5
_MOST_NAMED = 10

app = new_app("""Show the streams of an environment, and on how many NATS servers they are stored.

    Example:
      evenlane streams list
      evenlane streams migrate --replicas 3
    """)


def _replicas(text: str) -> int:
    found = number(text)
    if not 1 <= found <= _MOST:
        raise typer.BadParameter(f"{text!r} is not a number from 1 to {_MOST}: NATS allows no other")
    return found


@app.command("list")
@common
def list_(given: CommonOptions, *, as_json: Json = False) -> None:
    """Show how many streams of each kind there are, their replicas, and how many of them are incomplete.

    A stream is incomplete while fewer servers than it has replicas have all of its messages: a server is down, or
    copies. --json lists each stream.

    Example:
      evenlane streams list
      evenlane streams list --env sandbox --json
    """
    settings = given.load_shared().settings
    from evenlane.engine.base.log_setup import setup

    setup(settings.log_format, settings.log_level)
    from evenlane.engine.admin.streams.migrate import open_replication
    from evenlane.engine.runtime.run_loop import run_loop

    async def work() -> list[StreamReplicas]:
        async with open_replication(settings) as replication:
            return await replication.list_streams()

    found = run_loop(work())
    if as_json:
        print_json(
            {"env": settings.env, "streams": [each._asdict() | {"complete": each.is_complete} for each in found]}
        )
    else:
        _print(found)


def _print(found: list[StreamReplicas]) -> None:
    kinds: defaultdict[tuple[str, int], list[StreamReplicas]] = defaultdict(list)
    for each in found:
        kinds[each.stream.partition("_")[0], each.replicas].append(each)
    print_table(
        ["STREAMS", "NUMBER", "REPLICAS", "INCOMPLETE"],
        [
            [f"{kind}_*", str(len(streams)), str(replicas), str(sum(not each.is_complete for each in streams))]
            for (kind, replicas), streams in sorted(kinds.items())
        ],
    )
    incomplete = [each for each in found if not each.is_complete]
    for each in incomplete[:_MOST_NAMED]:
        typer.echo(f"{each.stream}: {each.current} of {format_count(each.replicas, 'replica')} complete")
    if len(incomplete) > _MOST_NAMED:
        typer.echo(f"and {len(incomplete) - _MOST_NAMED:,} more (--json lists all)")


@app.command()
@common
def migrate(
    given: CommonOptions,
    *,
    replicas: Annotated[
        int, typer.Option(parser=_replicas, metavar="N", help="Servers on which each stream is stored: 1 to 5.")
    ],
) -> None:
    """Store each stream on N servers, and wait until all of them have all messages. Nodes and producers may run.

    Needs a NATS cluster of at least N servers. (Don't add a server that has run alone to a cluster: nats-server deletes
    its streams.) The command can be interrupted, and run again: it goes on with what is left. Set
    `replicas` as well, so that streams that are created later get as many.

    Example:
      evenlane streams migrate --replicas 3
    """
    settings = given.load_shared().settings
    from evenlane.engine.base.log_setup import setup

    setup(settings.log_format, settings.log_level)
    from evenlane.engine.admin.streams import migrate as migration
    from evenlane.engine.cli.progress import ProgressDisplay
    from evenlane.engine.runtime.run_loop import run_loop

    async def work() -> int:
        async with migration.open_replication(settings) as replication:
            with ProgressDisplay("migrating", "stream", plain=True) as shown:
                return await migration.migrate(replication, settings.env, replicas, shown.update)

    changed = run_loop(work())
    typer.echo(f"changed {format_count(changed, 'stream')}: all have {format_count(replicas, 'replica')}")
