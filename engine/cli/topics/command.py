"""Command `evenlane topics`: shows, creates and changes topics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from evenlane.engine.cli.options import CommonOptions, Json, common, number
from evenlane.engine.cli.output import new_app, print_json, print_table
from evenlane.engine.cli.topics.apply import apply
from evenlane.engine.cli.topics.export import export
from evenlane.engine.cli.topics.fields import entry_line, from_flags, line, rows
from evenlane.engine.cli.topics.session import (
    By,
    IfRevision,
    change,
    note,
    print_change,
    run_with_topics,
)

if TYPE_CHECKING:
    from evenlane.engine.control.topics.history import ChangeHistory
    from evenlane.engine.control.topics.status import TopicStatus

app = new_app("""Show, create and change topics: the settings of projects.

    Example:
      evenlane topics set acme --qps 100
      evenlane topics list
      evenlane topics pause acme
    """)

Project = Annotated[str, typer.Argument(metavar="PROJECT")]
_MaxAttempts = Annotated[str | None, typer.Option(metavar="N", help="Attempts before a message is a dead letter.")]
_AckWait = Annotated[str | None, typer.Option(metavar="DURATION", help="Time until a silent handler times out.")]
_MaxBacklog = Annotated[str | None, typer.Option(metavar="N", help="Waiting messages above which puts are refused.")]
_DeadLetterExpired = Annotated[
    bool | None,
    typer.Option("--dead-letter-expired/--drop-expired", help="Whether an expired message becomes a dead letter."),
]
_Ordered = Annotated[
    bool | None,
    typer.Option("--ordered/--not-ordered", help="Whether messages of a key and priority keep their order."),
]
_Borrow = Annotated[
    bool | None, typer.Option("--borrow/--no-borrow", help="Whether a group may use quota that its siblings leave.")
]
_Ageing = Annotated[
    str | None, typer.Option(metavar="SHARE", help="Share of the turns that lower priorities get, 0 to 1.")
]
_Push = Annotated[str | None, typer.Option(metavar="JSON", help="POST messages to a URL (HTTP push).")]
_Subscription = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Set qps, burst or concurrency for this subscription only."),
]
_BackoffBase = Annotated[str | None, typer.Option(metavar="DURATION", help="Delay before the second attempt.")]
_BackoffFactor = Annotated[str | None, typer.Option(metavar="N", help="Growth of the delay per attempt.")]
_BackoffCap = Annotated[str | None, typer.Option(metavar="DURATION", help="Longest delay.")]
_BackoffJitter = Annotated[str | None, typer.Option(metavar="N", help="Random part of the delay, 0 to 1.")]


@app.command("set")
@common
def set_(
    given: CommonOptions,
    project: Project,
    *,
    qps: Annotated[str | None, typer.Option(metavar="N", help="Messages per second.")] = None,
    groups: Annotated[str | None, typer.Option(metavar="N", help="Number of groups; each has qps / groups.")] = None,
    burst: Annotated[str | None, typer.Option(metavar="N", help="Messages at once after a pause.")] = None,
    weight: Annotated[str | None, typer.Option(metavar="N", help="Share between tenants.")] = None,
    reserve: Annotated[str | None, typer.Option(metavar="N", help="QPS that go before the fair order.")] = None,
    concurrency: Annotated[str | None, typer.Option(metavar="N", help="Most messages in flight.")] = None,
    spread: Annotated[str | None, typer.Option(metavar="N", help="Most partitions of the topic.")] = None,
    max_attempts: _MaxAttempts = None,
    ttl: Annotated[str | None, typer.Option(metavar="DURATION", help="Time until a message expires.")] = None,
    ack_wait: _AckWait = None,
    max_backlog: _MaxBacklog = None,
    dead_letter_expired: _DeadLetterExpired = None,
    ordered: _Ordered = None,
    borrow: _Borrow = None,
    ageing: _Ageing = None,
    backoff_base: _BackoffBase = None,
    backoff_factor: _BackoffFactor = None,
    backoff_cap: _BackoffCap = None,
    backoff_jitter: _BackoffJitter = None,
    push: _Push = None,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="active, paused or draining.")] = None,
    subscription: _Subscription = None,
    if_revision: IfRevision = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Create a project's topic, or change it: only the given fields change.

    A new topic needs --qps. The value `default` restores the default of a field. With --subscription, only the nodes of
    that subscription have the given quota; `default` restores the topic's.

    Example:
      evenlane topics set acme --qps 100
      evenlane topics set acme --concurrency 20 --ttl 1d --json
      evenlane topics set acme --concurrency default
      evenlane topics set acme --subscription audit --qps 20 --concurrency 4
      evenlane topics set acme --push '{"url": "https://acme.example/hook", "timeout": 5}'
    """
    changes = from_flags(
        project, qps=qps, groups=groups, burst=burst, weight=weight, reserve=reserve, concurrency=concurrency,
        spread=spread, max_attempts=max_attempts, ttl=ttl, ack_wait=ack_wait, max_backlog=max_backlog,
        ordered=ordered, borrow=borrow, ageing=ageing, state=state, push=push,
        dead_letter_expired=dead_letter_expired, subscription=subscription,
        backoff={
            "base": backoff_base, "factor": backoff_factor, "cap": backoff_cap, "jitter": backoff_jitter,
        },
    )  # fmt: skip
    change(
        given, project, changes, via="topics set", by=by, if_revision=if_revision, as_json=as_json,
        subscription=subscription,
    )  # fmt: skip


@app.command()
@common
def pause(
    given: CommonOptions, project: Project, *, if_revision: IfRevision = None, by: By = None, as_json: Json = False
) -> None:
    """Stop handling a project's messages; puts are still accepted, and wait.

    Example:
      evenlane topics pause acme
    """
    changes: dict[str, object] = {"state": "paused"}
    change(given, project, changes, via="topics pause", by=by, if_revision=if_revision, as_json=as_json, known=True)


@app.command()
@common
def resume(
    given: CommonOptions, project: Project, *, if_revision: IfRevision = None, by: By = None, as_json: Json = False
) -> None:
    """End a pause or a drain, or restore a deleted topic.

    Example:
      evenlane topics resume acme
    """
    changes: dict[str, object] = {"state": "active"}
    change(given, project, changes, via="topics resume", by=by, if_revision=if_revision, as_json=as_json, known=True)


@app.command()
@common
def drain(
    given: CommonOptions, project: Project, *, if_revision: IfRevision = None, by: By = None, as_json: Json = False
) -> None:
    """Refuse puts from now on; waiting messages are still handled, even those of a deleted topic.

    Example:
      evenlane topics drain acme
    """
    changes: dict[str, object] = {"state": "draining"}
    change(given, project, changes, via="topics drain", by=by, if_revision=if_revision, as_json=as_json, known=True)


@app.command()
@common
def delete(
    given: CommonOptions, project: Project, *, if_revision: IfRevision = None, by: By = None, as_json: Json = False
) -> None:
    """Delete a project's topic: puts are refused, and waiting messages are kept and paused.

    `topics drain PROJECT` has them handled, `backlog purge PROJECT` drops them. The topic is removed when none are
    left. A topic that is draining continues to drain.

    Example:
      evenlane topics delete acme
    """
    from evenlane.engine.admin.topics.author import current_author

    status: TopicStatus = run_with_topics(
        given,
        lambda topic_client: topic_client.delete(project, if_revision=if_revision, via="topics delete"),
        by=current_author(by),
    )
    print_change(given, status, as_json=as_json)


@app.command()
@common
def get(given: CommonOptions, project: Project, *, as_json: Json = False) -> None:
    """Show a project's topic: its spec, and the settings in effect.

    Example:
      evenlane topics get acme
      evenlane topics get acme --json
    """
    status: TopicStatus = run_with_topics(given, lambda topic_client: topic_client.get(project))
    if as_json:
        print_json(status.document())
        return
    print_table(("FIELD", "IN EFFECT", "SPEC"), rows(status))
    note(given, status)


@app.command("list")
@common
def list_(given: CommonOptions, *, as_json: Json = False) -> None:
    """List all topics of the environment.

    Example:
      evenlane topics list
      evenlane topics list --env sandbox --json
    """
    statuses: list[TopicStatus] = run_with_topics(given, lambda topic_client: topic_client.all())
    if as_json:
        print_json({"topics": [each.document() for each in statuses]})
        return
    header = ("PROJECT", "QPS", "GROUPS", "BURST", "WEIGHT", "SPREAD", "STATE", "ACCEPTED")
    print_table(header, map(line, statuses))
    if refused := sum(each.problem is not None for each in statuses):
        count = "1 spec is" if refused == 1 else f"{refused:,} specs are"
        print(f"note: {count} rejected; the last good spec of a topic, if any, stays in effect", file=sys.stderr)  # noqa: T201


@app.command()
@common
def history(
    given: CommonOptions,
    project: Project,
    *,
    limit: Annotated[int, typer.Option(parser=number, metavar="N", help="Show the newest N changes.")] = 50,
    as_json: Json = False,
) -> None:
    """Show the changes of a project's topic, with author and time: the newest first; the last 50 are kept.

    Example:
      evenlane topics history acme --limit 5
    """
    if limit < 1:
        raise typer.BadParameter(f"--limit must be at least 1, not {limit}")

    found: ChangeHistory = run_with_topics(given, lambda topic_client: topic_client.history(project))
    entries = found.entries[:limit]
    if as_json:
        import msgspec

        print_json({"project": project, "changes": msgspec.to_builtins(entries), "damaged": found.unreadable})
        return
    print_table(("WHEN", "WHO", "COMMAND", "REVISION", "WHAT"), map(entry_line, entries))
    if found.unreadable:
        changes = "1 change" if len(found.unreadable) == 1 else f"{len(found.unreadable)} changes"
        print(f"note: {changes} can't be read: corrupted in etcd: {', '.join(found.unreadable)}", file=sys.stderr)  # noqa: T201


app.command()(apply)
app.command()(export)
