"""Command `evenlane subscriptions`: creates, shows, resets and deletes subscriptions."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlane.engine.cli.confirm import confirm_by_yes, require_terminal
from evenlane.engine.cli.options import CommonOptions, Json, Yes, common
from evenlane.engine.cli.output import UNNAMED, new_app, print_json, print_table
from evenlane.engine.cli.subscriptions.session import Session, count_reset, run_with_session

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cli.subscriptions.session import SubscriptionBacklog
    from evenlane.engine.control.subscriptions.client import SubscriptionStatus
    from evenlane.engine.control.subscriptions.reset import SubscriptionReset

app = new_app("""Create, show, reset and delete subscriptions: each receives every message.

    Example:
      evenlane subscriptions create audit
      evenlane subscriptions list
      evenlane run --subscription audit --handler examples.handler:handle
    """)

_Name = Annotated[str, typer.Argument(metavar="NAME")]
_Projects = Annotated[
    list[str] | None,
    typer.Option(
        "--projects", metavar="PATTERN", help="Only projects that match; * is any characters. May be repeated."
    ),
]
_From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="new|first|TIME",
        help="First message: a new one (default), the first stored, or since a time.",
    ),
]


_To = Annotated[str, typer.Option("--to", metavar="TIME|first|new", help="First message that it gets.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the messages, and change nothing.")]


@app.command()
@common
def create(
    given: CommonOptions, name: _Name, *, projects: _Projects = None, from_: _From = None, as_json: Json = False
) -> None:
    """Create a subscription. It gets each message that is put after this command has ended.

    With --from it also gets messages that are stored already: all of them (first), or those that were stored at a
    time, such as 2026-01-31T08:00:00Z or 2h ago, or later. What all other subscriptions have handled may be gone.

    No node may run an older release. It takes a second; if a node is frozen or cut off, until its lease has ended. If
    the command is interrupted, no message is removed from the streams until it is repeated, or the subscription is
    deleted.

    Example:
      evenlane subscriptions create audit
      evenlane subscriptions create billing --projects 'shop-*' --projects acme --json
      evenlane subscriptions create search --from 2h
    """
    settings = _load(given, name)

    from evenlane.engine.cli.progress import ProgressDisplay
    from evenlane.engine.control.subscriptions.project_patterns import check_patterns
    from evenlane.engine.control.subscriptions.start_point import parse_start

    check_patterns(projects or ())
    start = None if from_ is None else parse_start("--from", from_, time.time_ns())

    async def work(session: Session) -> tuple[SubscriptionBacklog, frozenset[int]]:
        from evenlane.engine.cli.subscriptions.session import read_backlog
        from evenlane.engine.control.subscriptions.client import SubscriptionClient
        from evenlane.engine.control.subscriptions.creation import Stores, SubscriptionCreation

        stores = Stores(await session.open_store(""), await session.open_store(name))
        etcd, env = session.etcd, session.env
        removed = await SubscriptionCreation(etcd, env, name, session.cluster_config, stores).run(projects or (), start)
        return await read_backlog(session, await SubscriptionClient(etcd, env).get(name)), removed

    with ProgressDisplay(f"creating {name}"):
        created, removed = run_with_session(settings, work)
    if as_json:
        print_json(created.document())
    else:
        print(f"{name}: created, for {_describe_projects(created.status)}")  # noqa: T201
    _warn_removed(name, removed)


@app.command("list")
@common
def list_(given: CommonOptions, *, as_json: Json = False) -> None:
    """List all subscriptions of the environment, that without a name first, with their backlogs.

    WAITING counts messages in the lanes. DELAYED counts delayed messages and those that wait for another attempt, also
    those that have become due and that no node has read yet.

    Example:
      evenlane subscriptions list
      evenlane subscriptions list --env sandbox --json
    """

    async def work(session: Session) -> list[SubscriptionBacklog]:
        from evenlane.engine.cli.subscriptions.session import read_backlog
        from evenlane.engine.control.subscriptions.client import SubscriptionClient

        found = await SubscriptionClient(session.etcd, session.env).all()
        return [await read_backlog(session, each) for each in found]

    found: list[SubscriptionBacklog] = run_with_session(given.load().settings, work)
    if as_json:
        print_json({"subscriptions": [each.document() for each in found]})
    else:
        print_table(("NAME", "STATE", "SINCE", "PROJECTS", "NODES", "WAITING", "DELAYED"), map(_line, found))


@app.command()
@common
def get(given: CommonOptions, name: _Name, *, as_json: Json = False) -> None:
    """Show a subscription, its nodes, its backlog, and the streams that only it has.

    Example:
      evenlane subscriptions get audit
      evenlane subscriptions get audit --json
    """
    from evenlane.engine.base.names import check_subscription

    check_subscription(name)

    async def work(session: Session) -> SubscriptionBacklog:
        from evenlane.engine.cli.subscriptions.session import read_backlog
        from evenlane.engine.control.subscriptions.client import SubscriptionClient

        return await read_backlog(session, await SubscriptionClient(session.etcd, session.env).get(name))

    found: SubscriptionBacklog = run_with_session(given.load().settings, work)
    if as_json:
        print_json(found.document())
        return
    shown = {
        field: ", ".join(_printable(value)) if isinstance(value, list) else value
        for field, value in found.document().items()
    }
    shown["projects"] = _describe_projects(found.status)
    print_table(("FIELD", "VALUE"), [(field, _cell(value)) for field, value in shown.items()])


@app.command()
@common
def reset(
    given: CommonOptions, name: _Name, *, to: _To, dry_run: _DryRun = False, yes: Yes = False, as_json: Json = False
) -> None:
    """Have a subscription get messages again from a time on, or skip what waits.

    TIME is such as 2026-01-31T08:00:00Z, or how long ago, such as 2h. It gets all messages that were stored then or
    later and are still there, handled or not: all that other subscriptions haven't handled either. `first` means all
    that are stored, `new` none: what waits is skipped, retries too. Attempts begin again; dead letters stay.

    Its nodes may run, or not. A message whose handler runs is handled again once it has ended.

    Example:
      evenlane subscriptions reset audit --to 2h --dry-run
      evenlane subscriptions reset audit --to 2026-01-31T08:00:00Z
      evenlane subscriptions reset audit --to new --yes --json
    """
    from evenlane.engine.base.plural import format_count
    from evenlane.engine.cli.progress import ProgressDisplay
    from evenlane.engine.control.subscriptions.start_point import parse_start

    settings = _load(given, name)
    start = parse_start("--to", to, time.time_ns())
    if not (yes or dry_run):
        require_terminal(f"subscriptions reset {name}", f"changes which messages subscription {name!r} gets")

    async def count(session: Session) -> int:
        await (await _prepare_reset(session, name)).check()
        return await count_reset(session, name, start.at)

    async def work(session: Session) -> frozenset[int]:
        return await (await _prepare_reset(session, name)).run(start)

    counted: int = run_with_session(settings, count)
    means = f"{'skips' if start.at is None else 'gets'} {format_count(counted, 'message')}"
    removed: frozenset[int] = frozenset()
    if not dry_run:
        if not yes:
            again = "" if start.at is None else ", also those that it has handled"
            confirm_by_yes(
                f"resets subscription {name!r} of environment {settings.env!r}, so it {means}{again}",
                "nothing was reset",
            )
        with ProgressDisplay(f"resetting {name}"):
            removed = run_with_session(settings, work)
    if as_json:
        gets, skips = (0, counted) if start.at is None else (counted, 0)
        print_json({"name": name, "to": to, "reset": not dry_run, "gets": gets, "skips": skips})
    else:
        print(f"{name}: {'would be reset' if dry_run else 'reset'}, and {means}")  # noqa: T201
    _warn_removed(name, removed)


async def _prepare_reset(session: Session, name: str) -> SubscriptionReset:
    from evenlane.engine.control.subscriptions.creation import Stores
    from evenlane.engine.control.subscriptions.reset import SubscriptionReset

    stores = Stores(await session.open_store(""), await session.open_store(name))
    return SubscriptionReset(session.etcd, session.env, name, session.cluster_config, stores)


@app.command()
@common
def delete(given: CommonOptions, name: _Name, *, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a subscription, with its settle logs, retries and dead letters. Others lose nothing.

    Its nodes must be stopped. If the command is interrupted, repeating it completes the deletion.

    Example:
      evenlane subscriptions delete audit
      evenlane subscriptions delete audit --yes --json
    """
    settings = _load(given, name)
    if not yes:
        _ask(settings, name)

    async def work(session: Session) -> None:
        from evenlane.engine.control.subscriptions.deletion import SubscriptionDeletion

        await SubscriptionDeletion(session.etcd, session.env, name, await session.open_store(name)).run()

    run_with_session(settings, work)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        print(f"{name}: deleted")  # noqa: T201


def _warn_removed(name: str, removed: frozenset[int]) -> None:
    """Say that a node that had lost its lease has removed messages that the subscription should get."""
    if removed:
        from evenlane.engine.base.plural import format_count
        from evenlane.engine.control.subscriptions.living_nodes import name_some

        of = f"{format_count(len(removed), 'partition')} ({name_some(sorted(removed))})"
        gone = f"note: messages of {of} were removed meanwhile by a node that had been stopped: {name} doesn't get them"
        print(gone, file=sys.stderr)  # noqa: T201


def _load(given: CommonOptions, name: str) -> Settings:
    """Return the settings of a command that changes a subscription. Raises InvalidName, ConfigError."""
    from evenlane.engine.base.names import check_subscription

    check_subscription(name)
    return given.load_shared().settings


def _ask(settings: Settings, name: str) -> None:
    """Ask whether to delete the subscription, unless it can't be deleted anyway. Raises EvenlaneError, ConfigError."""
    deed = f"permanently deletes subscription {name!r} of environment {settings.env!r}, and what it has not handled"
    require_terminal(f"subscriptions delete {name}", deed)

    async def check(session: Session) -> None:
        from evenlane.engine.control.subscriptions.deletion import SubscriptionDeletion

        await SubscriptionDeletion(session.etcd, session.env, name, None).check()

    run_with_session(settings, check)
    confirm_by_yes(deed)


def _line(shown: SubscriptionBacklog) -> tuple[str, ...]:
    found = shown.status
    name = UNNAMED if found.name is None else found.name
    projects = ",".join(_printable(found.projects)) or "all"
    backlog = _cell(shown.waiting), _cell(shown.delayed)
    return name, found.state, found.since or "-", projects, str(len(found.nodes)), *backlog


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return value or "-"


def _describe_projects(found: SubscriptionStatus) -> str:
    return ", ".join(_printable(found.projects)) or "all projects"


def _printable(values: list[str]) -> list[str]:
    """Values of etcd may be arbitrary."""
    return [each if each.isprintable() else repr(each) for each in values]
