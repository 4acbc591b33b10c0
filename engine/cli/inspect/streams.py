"""Command `evenlane streams`: shows on how many servers the streams are and how long they keep settled messages, and
changes that.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated

import typer

from evenlane.engine.base.durations import format_duration, parse_duration
from evenlane.engine.base.plural import format_count
from evenlane.engine.base.sizes import format_size, parse_size
from evenlane.engine.cli.options import CommonOptions, Json, common, number
from evenlane.engine.cli.output import new_app, print_json, print_table

if TYPE_CHECKING:
    from evenlane.engine.cli.subscriptions.session import Session
    from evenlane.engine.cluster.subscriptions.registry import Retain
    from evenlane.engine.core.replication_port import StreamReplicas

_MOST = 5
_MOST_NAMED = 10
_OFF = "off"
_SHORTEST_S, _LONGEST_S = 1.0, 365 * 86_400.0
_MOST_BYTES, _DEFAULT_BYTES = 1 << 53, 10 << 30
_SECOND = 1_000_000_000

app = new_app("""Show the streams of an environment, on how many NATS servers they are, and what they keep.

    Example:
      evenlane streams list
      evenlane streams migrate --replicas 3
      evenlane streams retain 24h
    """)


def _replicas(text: str) -> int:
    found = number(text)
    if not 1 <= found <= _MOST:
        raise typer.BadParameter(f"{text!r} is not a number from 1 to {_MOST}: NATS allows no other")
    return found


def _age(text: str) -> float | None:
    """Seconds; None: off."""
    if text == _OFF:
        return None
    seconds = parse_duration(text)
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        raise typer.BadParameter(f"{text!r} is not between 1s and 365d")
    return seconds


def _bytes(text: str) -> int:
    found = parse_size(text)
    if found is None or not 0 < found <= _MOST_BYTES:
        raise typer.BadParameter(f"{text!r} is not a size from 1 byte up, such as 500MiB, 20GiB or 1TiB")
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


@app.command()
@common
def retain(
    given: CommonOptions,
    *,
    age: Annotated[
        str | None, typer.Argument(metavar="DURATION|off", show_default=False, help="How long, such as 24h; or `off`.")
    ] = None,
    most_bytes: Annotated[
        int | None,
        typer.Option(
            "--bytes",
            parser=_bytes,
            metavar="SIZE",
            show_default="unchanged, at first 10GiB",
            help="The most bytes that all streams may have.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep settled messages for a while, so that a subscription can get them again; without DURATION, show how long.

    A message is kept for DURATION since it was stored, a delayed one since it was settled, but for all that a
    subscription still needs. While the streams have more than SIZE bytes, the oldest ones go earlier: each stream of a
    partition has the same share. Without --bytes, SIZE stays as it was; at first it is 10GiB.

    Example:
      evenlane streams retain 24h --bytes 20GiB
      evenlane streams retain
      evenlane streams retain off
    """
    from evenlane.engine.cli.progress import ProgressDisplay
    from evenlane.engine.cli.subscriptions.session import run_with_session

    seconds = None if age is None else _age(age)
    if most_bytes is not None and seconds is None:
        raise typer.BadParameter("--bytes bounds what is kept: name a DURATION, too")

    settings = given.load_shared().settings
    if age is None:
        found: Retain | None = run_with_session(settings, _read_retain)
    else:
        with ProgressDisplay(f"retain {age}"):
            found = run_with_session(settings, lambda session: _change_retain(session, seconds, most_bytes))
    _print_retain(settings.env, found, as_json=as_json)


async def _read_retain(session: Session) -> Retain | None:
    from evenlane.engine.control.subscriptions.registry_editor import RegistryEditor

    return await RegistryEditor(session.etcd, session.env).read_retain()


async def _change_retain(session: Session, seconds: float | None, most_bytes: int | None) -> Retain | None:
    """Keep settled messages for `seconds` from now on; None: no longer. Returns what is in effect then."""
    from evenlane.engine.cluster.subscriptions.registry import Retain
    from evenlane.engine.control.subscriptions.retention_change import RetentionChange

    store = await session.open_store("")
    changing = RetentionChange(session.etcd, session.env, session.cluster_config, store)
    if seconds is None:
        await changing.end()
        return None
    before = await _read_retain(session)
    most = most_bytes or (_DEFAULT_BYTES if before is None else before.most_bytes)
    retain = Retain(age=round(seconds * _SECOND), most_bytes=most)
    await changing.begin(retain)
    return retain


def _print_retain(env: str, found: Retain | None, *, as_json: bool) -> None:
    seconds = None if found is None else found.age / _SECOND
    if as_json:
        print_json({"env": env, "retain_s": seconds, "bytes": None if found is None else found.most_bytes})
    elif found is None or seconds is None:
        typer.echo("settled messages are removed at once")
    else:
        size = format_size(found.most_bytes)
        most = f"{size} bytes" if size.isdigit() else size
        typer.echo(f"settled messages are kept for {format_duration(seconds)}, while the streams have at most {most}")
