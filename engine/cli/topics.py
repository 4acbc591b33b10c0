"""`evenlane topics`: see, make and change what projects get."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from engine.cli.frame import new_app, print_json, print_table
from engine.cli.options import Given, Json, common
from engine.cli.topic_fields import from_flags, line, rows
from engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.settings import Settings
    from engine.wishes import Standing, Wishes

T = TypeVar("T")

app = new_app("See, make and change the topics of projects: what each gets.")

Project = Annotated[str, typer.Argument(metavar="PROJECT")]
_Number = Annotated[str | None, typer.Option(metavar="N")]
_Seconds = Annotated[str | None, typer.Option(metavar="DURATION")]


@app.command("set")
@common
def set_(
    given: Given,
    project: Project,
    *,
    qps: Annotated[str | None, typer.Option(metavar="N", help="Messages a second.")] = None,
    groups: Annotated[str | None, typer.Option(metavar="N", help="Shares of it; each has qps / groups.")] = None,
    burst: Annotated[str | None, typer.Option(metavar="N", help="Messages at once after a pause.")] = None,
    weight: Annotated[str | None, typer.Option(metavar="N", help="Share between tenants.")] = None,
    reserve: Annotated[str | None, typer.Option(metavar="N", help="A minimum, in QPS.")] = None,
    concurrency: Annotated[str | None, typer.Option(metavar="N", help="In flight at the most.")] = None,
    spread: Annotated[str | None, typer.Option(metavar="N", help="Partitions at the most.")] = None,
    max_attempts: Annotated[str | None, typer.Option(metavar="N", help="Then: dead letter.")] = None,
    ttl: Annotated[str | None, typer.Option(metavar="DURATION", help="A message's life.")] = None,
    ack_wait: Annotated[str | None, typer.Option(metavar="DURATION", help="A handler's time.")] = None,
    max_backlog: Annotated[str | None, typer.Option(metavar="N", help="Messages.")] = None,
    dead_letter_expired: Annotated[
        bool | None,
        typer.Option("--dead-letter-expired/--drop-expired", help="What becomes of a message that outlives its ttl."),
    ] = None,
    ordered: Annotated[bool | None, typer.Option("--ordered/--not-ordered", help="By key and priority.")] = None,
    borrow: Annotated[bool | None, typer.Option("--borrow/--no-borrow", help="What sibling groups leave.")] = None,
    ageing: Annotated[str | None, typer.Option(metavar="SHARE", help="For what waits longest, 0 to 1.")] = None,
    backoff_base: _Seconds = None,
    backoff_factor: _Number = None,
    backoff_cap: _Seconds = None,
    backoff_jitter: _Number = None,
    push: Annotated[str | None, typer.Option(metavar="JSON", help="POST messages to a url: docs/push.md.")] = None,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="active, paused or draining.")] = None,
    as_json: Json = False,
) -> None:
    """Make a project's topic, or change it: only what is named changes.

    --qps is needed the first time. `default` as a value gives a field its default again.

    Example:
      evenlane topics set acme --qps 100
      evenlane topics set acme --concurrency 20 --ttl 1d --json
      evenlane topics set acme --concurrency default
      evenlane topics set acme --push '{"url": "https://acme.example/hook", "timeout": 5}'
    """
    changes = from_flags(
        project, qps=qps, groups=groups, burst=burst, weight=weight, reserve=reserve, concurrency=concurrency,
        spread=spread, max_attempts=max_attempts, ttl=ttl, ack_wait=ack_wait, max_backlog=max_backlog,
        ordered=ordered, borrow=borrow, ageing=ageing, state=state, push=push,
        dead_letter_expired=dead_letter_expired,
        backoff={
            "base": backoff_base, "factor": backoff_factor, "cap": backoff_cap, "jitter": backoff_jitter,
        },
    )  # fmt: skip
    _change(given, project, changes, as_json=as_json)


@app.command()
@common
def pause(given: Given, project: Project, *, as_json: Json = False) -> None:
    """Stop handling a project's messages; puts go on and wait.

    Example:
      evenlane topics pause acme
    """
    _change(given, project, {"state": "paused"}, as_json=as_json, known=True)


@app.command()
@common
def resume(given: Given, project: Project, *, as_json: Json = False) -> None:
    """End a pause or a drain.

    Example:
      evenlane topics resume acme
    """
    _change(given, project, {"state": "active"}, as_json=as_json, known=True)


@app.command()
@common
def drain(given: Given, project: Project, *, as_json: Json = False) -> None:
    """Refuse puts from now on; what waits is still handled.

    Example:
      evenlane topics drain acme
    """
    _change(given, project, {"state": "draining"}, as_json=as_json, known=True)


@app.command()
@common
def delete(given: Given, project: Project, *, as_json: Json = False) -> None:
    """Take a project's topic away: puts are refused, what waits is still handled.

    Example:
      evenlane topics delete acme
    """

    async def work(wishes: Wishes) -> Standing:
        return await wishes.delete(project)

    _tell_change(_asked(given, work), as_json=as_json)


@app.command()
@common
def get(given: Given, project: Project, *, as_json: Json = False) -> None:
    """Show a project's topic: what is wished and what is in force.

    Example:
      evenlane topics get acme
      evenlane topics get acme --json
    """

    async def work(wishes: Wishes) -> Standing:
        return await wishes.get(project)

    standing: Standing = _asked(given, work)
    if as_json:
        print_json(standing.document())
        return
    print_table(("FIELD", "IN FORCE", "WISHED"), rows(standing))
    _note(standing)


@app.command("list")
@common
def list_(given: Given, *, as_json: Json = False) -> None:
    """List all topics of the environment.

    Example:
      evenlane topics list
      evenlane topics list --env sandbox --json
    """

    async def work(wishes: Wishes) -> list[Standing]:
        return await wishes.all()

    standings: list[Standing] = _asked(given, work)
    if as_json:
        print_json({"topics": [each.document() for each in standings]})
        return
    header = ("PROJECT", "QPS", "GROUPS", "BURST", "WEIGHT", "SPREAD", "STATE", "ACCEPTED")
    print_table(header, map(line, standings))


@app.command()
@common
def apply(given: Given, file: Annotated[Path, typer.Argument(metavar="FILE")], *, as_json: Json = False) -> None:
    """Make or replace the topics that a file describes; others stay as they are. All or none is written.

    FILE holds {"acme": {"qps": 100, ...}, ...} in JSON, or the same as TOML tables (*.toml).

    Example:
      evenlane topics apply topics.toml
    """
    from engine.wish_file import read

    described = read(file)

    async def work(wishes: Wishes) -> list[Standing]:
        return await wishes.replace(described)

    standings: list[Standing] = _asked(given, work, writes=True)
    waiting = [each.project for each in standings if not each.accepted]
    if as_json:
        print_json({"applied": len(standings), "accepted": len(standings) - len(waiting), "waiting": waiting})
    else:
        print(f"applied {len(standings)}, accepted {len(standings) - len(waiting)}")  # noqa: T201
    if waiting:
        raise EvenlaneError(f"not accepted yet: {', '.join(waiting[:10])}: `evenlane topics list` tells more")


def _change(given: Given, project: str, changes: dict[str, object], *, as_json: bool, known: bool = False) -> None:
    async def work(wishes: Wishes) -> Standing:
        if await wishes.moves_keys(project, changes):
            await _check_drained(given.load().settings, project)
        begins = changes.get("ordered") is True and await wishes.is_unordered(project)
        standing = await wishes.change(project, changes, known=known)
        if begins:
            await _note_what_waits(given.load().settings, project)
        return standing

    _tell_change(_asked(given, work, writes=True), as_json=as_json)


async def _check_drained(settings: Settings, project: str) -> None:
    """An ordered topic is about to get other groups. Raises EvenlaneError."""
    from engine.backlog.command import peek

    parts = (await peek(settings, project, None, 0))["priorities"]
    if waiting := sum(part["waiting"] + part["delayed"] for part in parts):
        raise EvenlaneError(
            f"topic {project} is ordered and {waiting:,} of its messages still wait or are being handled: with other"
            " groups the next ones of a key would pass them by, so leave it draining until its backlog is empty"
        )


async def _note_what_waits(settings: Settings, project: str) -> None:
    """A topic has just become ordered."""
    from engine.backlog.command import peek

    parts = (await peek(settings, project, None, 0))["priorities"]
    if waiting := sum(part["waiting"] + part["delayed"] for part in parts):
        print(  # noqa: T201
            f"note: {waiting:,} messages of {project} wait from before it was ordered: if its groups have changed since"
            " they were put, those of a key may lie in two groups, each in an order of its own",
            file=sys.stderr,
        )


def _tell_change(standing: Standing, *, as_json: bool) -> None:
    """Exit code 1 if the change is written and not in force: a put that counts on it would fail."""
    if as_json:
        print_json(standing.document())
    elif standing.wish is None:
        print(f"{standing.project}: deleted")  # noqa: T201
    elif standing.accepted and standing.in_force is not None:
        topic = standing.in_force.topic
        groups = f"{topic.groups} group{'' if topic.groups == 1 else 's'}"
        print(f"{standing.project}: {topic.qps:g} QPS in {groups}, {topic.state}, accepted")  # noqa: T201
    if not standing.accepted and (standing.in_force is not None or standing.wish is not None):
        raise EvenlaneError(_why_not(standing))


def _note(standing: Standing) -> None:
    if not standing.accepted:
        print(f"note: {_why_not(standing)}", file=sys.stderr)  # noqa: T201


def _why_not(standing: Standing) -> str:
    if standing.problem is not None:
        return f"the wish of topic {standing.project} can't be accepted: {standing.problem}"
    return (
        f"the change of topic {standing.project} is written, but the leader has not accepted it: "
        f"`evenlane topics get {standing.project}` tells when it has"
    )


def _asked(given: Given, work: Callable[[Wishes], Awaitable[T]], *, writes: bool = False) -> T:
    """Do the work with a connection to etcd. Only what `writes` makes an environment that isn't there yet."""
    settings = given.load().settings
    from engine.cli.run import run_loop
    from engine.logs import setup

    setup(settings.log_format, settings.log_level)
    from engine import clients
    from engine.facts import agree
    from engine.wishes import Wishes, known_facts

    async def ask() -> T:
        with clients.explained():
            etcd = clients.etcd(settings)
            try:
                facts = (
                    await agree(etcd, settings.env, clients.told_facts(settings))
                    if writes
                    else await known_facts(etcd, settings.env)
                )
                return await work(Wishes(etcd, settings.env, facts))
            finally:
                await etcd.close()

    found: T = run_loop(ask())
    return found
