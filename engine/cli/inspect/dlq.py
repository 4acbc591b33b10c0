"""Command `evenlane dlq`: shows, replays and drops dead letters, and sets how long they are kept."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.confirm import confirm_by_name, require_terminal
from evenlane.engine.cli.inspect.dlq_arguments import All, ErrorKey, Project, Seq, check, choose, parse_rate, positive
from evenlane.engine.cli.inspect.dlq_format import (
    ERRORS_HEADER,
    LIST_HEADER,
    body_line,
    dead_letter_fields,
    error_line,
    line,
)
from evenlane.engine.cli.options import CommonOptions, Json, Yes, common_of_subscription, seconds
from evenlane.engine.cli.output import new_app, print_json, print_table
from evenlane.engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.admin.dead_letters.by_error import ErrorTally
    from evenlane.engine.admin.dead_letters.client import DeadLetterClient
    from evenlane.engine.admin.replays.replay import ReplayProgress as HowFar
    from evenlane.engine.admin.replays.replay import ReplayResult
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.message.dead_letter import DeadLetter

T = TypeVar("T")

_SHOWN_FAILURES = 20

app = new_app("""Show, replay and drop dead letters: messages whose last attempt failed.

    Example:
      evenlane dlq list acme
      evenlane dlq replay acme --seq 1
    """)


@app.command("list")
@common_of_subscription
def list_(
    given: CommonOptions,
    project: Project,
    *,
    limit: Annotated[int, typer.Option(parser=positive, metavar="N", help="At most N dead letters.")] = 100,
    by_error: Annotated[
        bool, typer.Option("--by-error", help="A line for each error, the most frequent first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List a project's dead letters, the oldest first.

    Example:
      evenlane dlq list acme
      evenlane dlq list acme --by-error
      evenlane dlq list acme --limit 1000 --json
    """
    check(project)
    if by_error:
        _list_errors(given, project, as_json=as_json)
        return

    async def work(dead_letters: DeadLetterClient) -> tuple[int, float, list[DeadLetter]]:
        total = await dead_letters.count(project)
        return total, await dead_letters.kept(), await dead_letters.oldest(project, limit) if total else []

    total, kept, found = _run_with_client(given, work)
    if as_json:
        documents = [dead_letter.document(body=False) for dead_letter in found]
        print_json({"project": project, "total": total, "keep_seconds": kept or None, "letters": documents})
        return
    if not found:
        print(f"{project} has no dead letters")  # noqa: T201
        return
    print_table(LIST_HEADER, map(line, found))
    if total > len(found):
        print(f"these are the oldest {len(found):,} of {total:,}: --limit shows more", file=sys.stderr)  # noqa: T201


def _list_errors(given: CommonOptions, project: str, *, as_json: bool) -> None:
    async def work(dead_letters: DeadLetterClient) -> tuple[int, ErrorTally]:
        return await dead_letters.count(project), await dead_letters.by_error(project)

    total, tally = _run_with_client(given, work)
    groups = tally.groups()
    if as_json:
        errors = [group.document() for group in groups]
        print_json({"project": project, "total": total, "grouped": tally.counted, "errors": errors})
    elif groups:
        print_table(ERRORS_HEADER, map(error_line, groups))
    else:
        print(f"{project} has no dead letters")  # noqa: T201
    if tally.counted < total and not as_json:
        print(f"these are the errors of the oldest {tally.counted:,} of {total:,}", file=sys.stderr)  # noqa: T201


@app.command()
@common_of_subscription
def show(
    given: CommonOptions,
    project: Project,
    seq: Annotated[int, typer.Argument(metavar="SEQ", parser=positive, help="Number of the dead letter (dlq list).")],
    *,
    as_json: Json = False,
) -> None:
    """Show one dead letter with its headers and its body (base64 where it isn't text).

    Example:
      evenlane dlq show acme 1
      evenlane dlq show acme 1 --json
    """
    check(project)

    dead_letter: DeadLetter = _run_with_client(given, lambda dead_letters: dead_letters.get(project, seq))
    if as_json:
        print_json(dead_letter.document(body=True))
        return
    for name, text in dead_letter_fields(dead_letter):
        print(f"{name:<11}{text}")  # noqa: T201
    print(f"\n{body_line(dead_letter)}")  # noqa: T201


@app.command()
@common_of_subscription
def replay(
    given: CommonOptions,
    project: Project,
    *,
    seq: Seq = None,
    everything: All = False,
    error: ErrorKey = None,
    rate: Annotated[
        float | None,
        typer.Option(parser=parse_rate, metavar="N", help="Dead letters per second. Default: the topic's QPS."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put dead letters back into their queues, for a new first attempt.

    A dead letter is removed once its message is stored. --all replays those that exist now, at a limited rate; it can
    be interrupted and repeated at any time. It waits for full queues. Exit code 1 if a dead letter had to stay.

    Example:
      evenlane dlq replay acme --seq 1
      evenlane dlq replay acme --all --rate 50
    """
    check(project)
    selection = choose("replay", project, seq, error, everything=everything)
    if project == "_stray":
        raise ConfigError(
            "_stray holds messages that no queue had, so there is none to replay them into: "
            "`evenlane dlq show _stray SEQ --json` shows the body, for another put"
        )
    from evenlane.engine.cli.progress import ProgressDisplay

    def on_progress(far: HowFar) -> None:
        failed = f"{far.failed:,} failed" if far.failed else ""
        waits = f"waits: {far.waits}" if far.waits else ""
        shown.update(far.replayed + far.failed, far.total, ", ".join(filter(None, [failed, waits])))

    with ProgressDisplay("replaying", "letter", plain=True) as shown:
        result: ReplayResult = _run_with_client(
            given,
            lambda dead_letters: dead_letters.replay(
                project, seq, selection=selection, rate=rate, on_progress=on_progress
            ),
        )
    if as_json:
        print_json({"replayed": result.replayed, "failed": [each._asdict() for each in result.failed]})
    else:
        _print_result(result)
    if result.stopped:
        raise EvenlaneError(result.stopped)
    if result.failed:
        raise typer.Exit(1)


@app.command()
@common_of_subscription
def drop(
    given: CommonOptions,
    project: Project,
    *,
    seq: Seq = None,
    everything: All = False,
    error: ErrorKey = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Remove dead letters; they can't be restored. --all and --error ask before, unless there is --yes.

    Example:
      evenlane dlq drop acme --seq 2
      evenlane dlq drop acme --all --yes
    """
    check(project)
    selection = choose("drop", project, seq, error, everything=everything)
    if seq is None and not yes:
        _ask(given, project, error)

    from evenlane.engine.cli.progress import ProgressDisplay

    with ProgressDisplay("dropping", "letter") as shown:
        dropped: int = _run_with_client(
            given,
            lambda dead_letters: dead_letters.drop(project, seq, selection=selection, on_progress=shown.update),
        )
    if as_json:
        print_json({"dropped": dropped})
    else:
        print(f"dropped {dropped}")  # noqa: T201


@app.command()
@common_of_subscription
def keep(
    given: CommonOptions,
    duration: Annotated[float, typer.Argument(parser=seconds, metavar="DURATION", help="For example 12h or 30d.")],
    *,
    as_json: Json = False,
) -> None:
    """Set how long dead letters are kept, including existing ones: those of the subscription, for all projects.

    If the stream has to be created again, nodes and producers use the setting dead_letter_keep.

    Example:
      evenlane dlq keep 30d
    """
    if duration < 1:
        raise ConfigError("DURATION is less than a second: dead letters would be gone before anyone sees them")

    async def work(dead_letters: DeadLetterClient) -> float:
        before = await dead_letters.kept()
        await dead_letters.keep(duration)
        return before

    before: float = _run_with_client(given, work)
    settings = given.load().settings
    env = settings.env
    if as_json:
        print_json({"env": env, "keep_seconds": duration, "before_seconds": before or None})
        return
    from evenlane.engine.base.durations import format_duration

    now, was = format_duration(duration), format_duration(before) if before else "forever"
    print(f"dead letters{_for_subscription(settings)} in {env} are kept for {now}; previously: {was}")  # noqa: T201


def _for_subscription(settings: Settings) -> str:
    return "" if settings.subscription is None else f" for subscription {settings.subscription!r}"


def _ask(given: CommonOptions, project: str, error: str | None) -> None:
    """Ask whether these dead letters shall go, with the number of the project's; don't if there are none."""
    settings = given.load_shared().settings
    where = f"of {project}{_for_subscription(settings)} in environment {settings.env!r}"
    which = "all dead letters" if error is None else f"the dead letters with error {error!r}"
    require_terminal("drop", f"permanently removes {which} {where}")
    count: int = _run_with_client(given, lambda dead_letters: dead_letters.count(project))
    if count:
        many = f"{format_count(count, 'dead letter')} {where}"
        confirm_by_name(
            project, f"permanently removes {many}" if error is None else f"permanently removes {which}, of {many}"
        )


def _print_result(result: ReplayResult) -> None:
    for each in result.failed[:_SHOWN_FAILURES]:
        print(f"dead letter {each.seq} ({each.id}) stays: {each.error}", file=sys.stderr)  # noqa: T201
    more = len(result.failed) - _SHOWN_FAILURES
    if more > 0:
        print(f"{more:,} more stay: --json lists them all", file=sys.stderr)  # noqa: T201
    failed = f", failed {len(result.failed)}" if result.failed else ""
    print(f"replayed {result.replayed}{failed}")  # noqa: T201


def _run_with_client(given: CommonOptions, work: Callable[[DeadLetterClient], Awaitable[T]]) -> T:
    settings = given.load_shared().settings
    from evenlane.engine.admin.dead_letters.client import opened
    from evenlane.engine.cli.signals import run_with_client

    found: T = run_with_client(settings, opened, work)
    return found
