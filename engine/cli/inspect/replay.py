"""Command `evenlane replay`: puts a stretch of what was handled in front of one subscription again."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from evenlane.engine.base.durations import format_instant
from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.confirm import confirm_by_yes, require_terminal
from evenlane.engine.cli.inspect.dlq_arguments import parse_rate
from evenlane.engine.cli.options import CommonOptions, Json, Yes, common_of_subscription, past
from evenlane.engine.cli.output import print_json
from evenlane.engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.admin.replays.client import HandledClient
    from evenlane.engine.admin.replays.replay import ReplayProgress, ReplayResult
    from evenlane.engine.admin.replays.selection import Selection, Stretch
    from evenlane.engine.base.config.settings import Settings

T = TypeVar("T")

_SHOWN_FAILURES = 20

_Since = Annotated[
    int, typer.Option("--from", parser=past, metavar="TIME", help="Stored from then on: RFC 3339, or how long ago.")
]
_Until = Annotated[int, typer.Option("--to", parser=past, metavar="TIME", help="Stored before then.")]
_Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")]
_Rate = Annotated[
    float | None, typer.Option(parser=parse_rate, metavar="N", help="Messages per second. Default: the topic's QPS.")
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the messages.")]


@common_of_subscription
def replay(
    given: CommonOptions,
    project: Annotated[str, typer.Argument(metavar="PROJECT")],
    *,
    since: _Since,
    until: _Until,
    key: _Key = None,
    rate: _Rate = None,
    dry_run: _DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Handle messages again: put a stretch of what was handled in front of one subscription.

    Means the messages of the project that were stored from --from until before --to, that the subscription has settled,
    and that are still stored. Each returns to its queue as a copy for a new first attempt, and no other subscription
    gets it. Asks before, unless there is --yes. It can be interrupted; if it is repeated with the same times within the
    duplicate window (30s by default), no message is stored twice. Exit code 1 if a message couldn't be put.

    Example:
      evenlane replay acme --from 2h --to 1h --dry-run
      evenlane replay acme --from 2026-01-31T08:00:00Z --to 2026-01-31T09:00:00Z --subscription audit
    """
    settings = given.load_shared().settings
    stretch = _check(project, since, until, key)
    where = f"of {project} in front of {_name(settings)}"
    if not (yes or dry_run):
        require_terminal("replay", f"puts messages {where} again")
    found: Selection = _run(settings, lambda client: client.select(project, stretch))
    result: ReplayResult | None = None
    if found.total and not dry_run:
        if not yes:
            confirm_by_yes(f"puts {format_count(found.total, 'message')} {where} again", "nothing was replayed")
        result = _run(settings, lambda client: _carry_out(client, project, found, rate))
    if as_json:
        print_json(_document(settings, project, stretch, found, result))
    else:
        _print(settings, project, stretch, found, result)
    if result is not None and result.stopped:
        raise EvenlaneError(result.stopped)
    if result is not None and result.failed:
        raise typer.Exit(1)


def _check(project: str, since: int, until: int, key: str | None) -> Stretch:
    """Raises InvalidName, ConfigError."""
    from evenlane.engine.admin.replays.selection import Stretch
    from evenlane.engine.base.names import check_key, check_project

    check_project(project)
    if since > time.time_ns():
        raise ConfigError(f"--from {format_instant(since)} is in the future: nothing is stored from then on")
    if until <= since:
        raise ConfigError(f"--to {format_instant(until)} is not after --from {format_instant(since)}")
    return Stretch(since, until, None if key is None else check_key(key))


def _run(settings: Settings, work: Callable[[HandledClient], Awaitable[T]]) -> T:
    from evenlane.engine.admin.replays.client import opened
    from evenlane.engine.cli.signals import run_with_client

    found: T = run_with_client(settings, opened, work)
    return found


async def _carry_out(client: HandledClient, project: str, found: Selection, rate: float | None) -> ReplayResult:
    from evenlane.engine.cli.progress import ProgressDisplay

    def on_progress(far: ReplayProgress) -> None:
        failed = f"{far.failed:,} failed" if far.failed else ""
        waits = f"waits: {far.waits}" if far.waits else ""
        shown.update(far.replayed + far.failed, far.total, ", ".join(filter(None, [failed, waits])))

    with ProgressDisplay("replaying", "message", plain=True) as shown:
        return await client.replay(project, found, rate=rate, on_progress=on_progress)


def _document(
    settings: Settings, project: str, stretch: Stretch, found: Selection, result: ReplayResult | None
) -> dict[str, Any]:
    return {
        "project": project,
        "subscription": settings.subscription,
        "from": format_instant(stretch.since),
        "to": format_instant(stretch.until),
        "key": stretch.key,
        "messages": found.total,
        "waiting": found.waiting,
        "replayed": 0 if result is None else result.replayed - result.duplicates,
        "duplicates": 0 if result is None else result.duplicates,
        "failed": [] if result is None else [each._asdict() for each in result.failed],
    }


def _print(settings: Settings, project: str, stretch: Stretch, found: Selection, result: ReplayResult | None) -> None:
    when = f"from {format_instant(stretch.since)} until {format_instant(stretch.until)}"
    if found.waiting:
        print(f"left out, as not settled yet: {format_count(found.waiting, 'message')}", file=sys.stderr)  # noqa: T201
    if result is None:
        which = f"stored {when} and settled by {_name(settings)}"
        if found.total:
            print(f"{project}: {format_count(found.total, 'message')} to replay, {which}")  # noqa: T201
        else:
            print(f"{project}: nothing to replay, as no message {which} is still there")  # noqa: T201
        return
    for each in result.failed[:_SHOWN_FAILURES]:
        print(f"message {each.id} isn't replayed: {each.error}", file=sys.stderr)  # noqa: T201
    more = len(result.failed) - _SHOWN_FAILURES
    if more > 0:
        print(f"{more:,} more aren't: --json lists them all", file=sys.stderr)  # noqa: T201
    failed = f", failed {len(result.failed)}" if result.failed else ""
    already = f"; an earlier replay had put the other {result.duplicates}" if result.duplicates else ""
    print(f"replayed {result.replayed - result.duplicates}{failed}{already}")  # noqa: T201


def _name(settings: Settings) -> str:
    name = settings.subscription
    return "the unnamed subscription" if name is None else f"subscription {name!r}"
