"""Command `evenlane backlog`: shows or drops the waiting messages of a project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.confirm import confirm_by_name, require_terminal
from evenlane.engine.cli.options import CommonOptions, Json, Yes, common_of_subscription, number
from evenlane.engine.cli.output import UNNAMED, new_app, print_json, print_table
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings

_MOST = 1_000

app = new_app("""Show or drop the waiting messages of a project.

    Example:
      evenlane backlog peek acme
      evenlane backlog cancel acme order-1
      evenlane backlog peek acme --subscription audit
    """)

_Project = Annotated[str, typer.Argument(metavar="PROJECT")]
_Priority = Annotated[str | None, typer.Option("--priority", metavar="P", help="Only this priority.")]
_Limit = Annotated[int, typer.Option("--limit", parser=number, metavar="N", help="Messages per priority.")]


@app.command("peek")
@common_of_subscription
def peek(
    given: CommonOptions, project: _Project, *, priority: _Priority = None, limit: _Limit = 10, as_json: Json = False
) -> None:
    """Show the next messages of a project, in their order, for one subscription.

    Reads only the streams: no node needs to run. The list includes messages that are being handled at this moment.
    Delayed messages and retries are listed at their due time.

    Example:
      evenlane backlog peek acme
      evenlane backlog peek acme --priority high --limit 100 --json
    """
    if not 1 <= limit <= _MOST:
        raise ConfigError(f"--limit must be from 1 to {_MOST}, not {limit}")
    settings = _settings(given)
    from evenlane.engine.admin.backlog.peek import peek as look
    from evenlane.engine.cli.progress import ProgressDisplay
    from evenlane.engine.runtime.run_loop import run_loop

    with ProgressDisplay("reading"):
        result: dict[str, Any] = run_loop(look(settings, project, priority, limit))
    if as_json:
        print_json(result)
    else:
        _show(result)


@app.command("purge")
@common_of_subscription
def purge(
    given: CommonOptions, project: _Project, *, priority: _Priority = None, yes: Yes = False, as_json: Json = False
) -> None:
    """Drop all messages of a project that wait for one subscription at this moment, delayed ones and retries included.

    They can't be restored, and count as dropped. Running handlers finish.

    Example:
      evenlane backlog purge acme --priority low
      evenlane backlog purge acme --yes --json
      evenlane backlog purge acme --subscription audit
    """
    settings = _settings(given)
    if not yes:
        _ask(project, priority, settings)
    from evenlane.engine.admin.backlog.purge import purge as drop
    from evenlane.engine.cli.progress import ProgressDisplay
    from evenlane.engine.runtime.run_loop import run_loop

    with ProgressDisplay("dropping", "message") as shown:
        result: dict[str, Any] = run_loop(drop(settings, project, priority, shown.update))
    if as_json:
        print_json(result)
    else:
        dropped, on = format_count(result["dropped"], "message"), result["in_flight"]
        ends = "is being handled and will finish" if on == 1 else "are being handled and will finish"
        typer.echo(f"dropped {dropped} of {project}{_whose(result)}{f'; {on:,} {ends}' if on else ''}")


@app.command("cancel")
@common_of_subscription
def cancel(
    given: CommonOptions,
    project: _Project,
    message_id: Annotated[str, typer.Argument(metavar="ID")],
    *,
    as_json: Json = False,
) -> None:
    """Drop one message by its id, whether it is due now, delayed or waits for its next attempt.

    Without --subscription it is dropped for all subscriptions.

    Example:
      evenlane backlog cancel acme order-4711
      evenlane backlog cancel acme order-4711 --subscription audit
    """
    settings = _settings(given)
    from evenlane.engine.admin.backlog.cancel import cancel as drop
    from evenlane.engine.cli.progress import ProgressDisplay
    from evenlane.engine.runtime.run_loop import run_loop

    with ProgressDisplay(f"looking for {message_id}"):
        result: dict[str, Any] = run_loop(drop(settings, project, message_id))
    if as_json:
        print_json(result)
    else:
        of = [each["subscription"] or UNNAMED for each in result["subscriptions"] if each["messages"]]
        whose = f" for {', '.join(of)}" if len(result["subscriptions"]) > 1 or of != [UNNAMED] else ""
        typer.echo(f"cancelled {message_id} of {project}{whose}")


def _settings(given: CommonOptions) -> Settings:
    settings = given.load_shared().settings
    from evenlane.engine.base.log_setup import setup

    setup(settings.log_format, settings.log_level)
    return settings


def _ask(project: str, priority: str | None, settings: Settings) -> None:
    what = f"all of {project}" if priority is None else f"priority {priority} of {project}"
    whose = "" if settings.subscription is None else f" for subscription {settings.subscription!r}"
    deed = f"permanently drops {what}{whose} in environment {settings.env!r}"
    require_terminal("purge", deed)
    confirm_by_name(project, deed)


def _whose(result: dict[str, Any]) -> str:
    """Name the subscription, if there is any but the unnamed one."""
    if result["subscription"] is not None:
        return f" for subscription {result['subscription']!r}"
    return " for the subscription without a name" if result["others"] else ""


def _show(result: dict[str, Any]) -> None:
    if whose := _whose(result):
        others = ", ".join(map(str, result["others"]))
        more = f" (--subscription shows that of {others})" if result["subscription"] is None else ""
        typer.echo(f"{result['project']}{whose}{more}")
    for part in result["priorities"]:
        typer.echo(f"{part['priority']}: {part['waiting']:,} waiting, {part['delayed']:,} delayed or to be retried")
        if part["messages"]:
            print_table(
                ("STREAM", "SEQ", "ID", "KEY", "TRY", "PUT", "DUE", "EXPIRES", "BYTES", "BODY"),
                [_row(message) for message in part["messages"]],
            )


def _row(message: dict[str, Any]) -> tuple[str, ...]:
    body = message.get("body_start")
    shown = ascii(body)[1:-1] if body is not None else f"base64 {message['body_start_base64']}"
    times = (message[name] or "-" for name in ("put_at", "due_at", "expires_at"))
    return (
        message["stream"], str(message["sequence"]), message["id"], message["key"] or "-", str(message["attempt"]),
        *(time if time == "-" else f"{time[:19]}Z" for time in times), str(message["size"]), shown,
    )  # fmt: skip
