"""Command `evenlane topics apply`: writes many topics from a file, after showing a plan."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import TYPE_CHECKING, Annotated

import typer

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.options import CommonOptions, Json, Yes, common
from evenlane.engine.cli.output import print_json, print_table
from evenlane.engine.cli.topics.fields import row_line
from evenlane.engine.cli.topics.session import By, run_with_etcd
from evenlane.engine.errors import EvenlaneError, InvalidTopic, Unreachable, hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.control.topics.apply import ApplyOutcome
    from evenlane.engine.control.topics.plan import Manifest, PlanRow
    from evenlane.ring.coordination.ports import Coordination

_MOST_NAMED = 10  # in a sentence
_MOST_LISTED = 100  # lines

_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and write nothing.")]


@common
def apply(
    given: CommonOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Topics in JSON or TOML; - is stdin.")],
    *,
    dry_run: _DryRun = False,
    yes: Yes = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Create or replace the topics that a file describes; others stay as they are.

    Shows the plan first: topics that are new, changed, unchanged, wrong or held. If any is wrong, it writes nothing. On
    a terminal it asks before it writes. It leaves a topic alone, and says so, if somebody changes it meanwhile, or if
    it is ordered and would get other groups while its messages wait (held).
    FILE holds {"acme": {"qps": 100, ...}, ...} in JSON, or the same as TOML tables (*.toml); - is stdin, either way.

    Example:
      evenlane topics apply topics.toml --dry-run
      evenlane topics apply topics.toml --yes --json
      echo '{"acme": {"qps": 100}}' | evenlane topics apply -
    """
    from evenlane.engine.admin.topics.apply import document
    from evenlane.engine.admin.topics.author import current_author
    from evenlane.engine.control.topics.manifest import load_manifest, name
    from evenlane.engine.control.topics.plan import DUE

    author = current_author(by)
    described = load_manifest(file)
    rows = _plan(given, described)
    if not as_json:
        _show_plan(rows)
    wrong = [row for row in rows if row.action == "wrong"]
    held = [row for row in rows if row.action == "held"]
    due = sum(row.action in DUE for row in rows)
    if wrong or dry_run or not due or not (yes or _confirm(due, given.load().settings.env)):
        if as_json:
            print_json(document(rows, None))
        if wrong:
            raise InvalidTopic(f"{name(file)}: {_describe_rows(wrong, 'wrong')}: nothing was written")
        if held:
            raise EvenlaneError(f"{name(file)}: {_describe_rows(held, 'held')}")
        return
    outcome = _carry_out(given, rows, due, author)
    if as_json:
        print_json(document(rows, outcome))
    else:
        accepted = len(outcome.written) - len(outcome.waiting)
        print(f"applied {len(outcome.written):,}, accepted {accepted:,}")  # noqa: T201
    _complain(outcome, due + len(held), given.load().settings.env)


def _plan(given: CommonOptions, described: Manifest) -> list[PlanRow]:
    from evenlane.engine.control.topics.plan import plan_changes

    async def work(etcd: Coordination, settings: Settings, cluster_config: ClusterConfig) -> list[PlanRow]:
        from evenlane.engine.admin.topics.change import count_waiting
        from evenlane.engine.control.topics.apply import ApplyPlan

        return await ApplyPlan(etcd, settings.env, cluster_config, waiting=partial(count_waiting, settings)).plan(
            described
        )

    from evenlane.engine.cli.progress import ProgressDisplay

    try:
        with ProgressDisplay("comparing with the present topics"):
            rows: list[PlanRow] = run_with_etcd(given, work)
    except Unreachable:
        if not described.wrong:
            raise
        from evenlane.engine.cluster.cluster_config import ClusterConfig as Defaults

        return plan_changes(described._replace(specs={}), {}, {}, Defaults())
    return rows


def _carry_out(given: CommonOptions, rows: list[PlanRow], due: int, by: str) -> ApplyOutcome:
    from evenlane.engine.cli.progress import ProgressDisplay

    async def work(etcd: Coordination, settings: Settings, cluster_config: ClusterConfig) -> ApplyOutcome:
        from evenlane.engine.admin.topics.change import count_waiting
        from evenlane.engine.control.topics.apply import ApplyPlan

        applying = ApplyPlan(etcd, settings.env, cluster_config, by, partial(count_waiting, settings))
        return await applying.carry_out(
            rows, lambda written, waiting: shown.update(written, due, f"{written - waiting:,} accepted")
        )

    with ProgressDisplay("writing", "topic") as shown:
        outcome: ApplyOutcome = run_with_etcd(given, work, writes=True)
    return outcome


def _show_plan(rows: list[PlanRow]) -> None:
    from evenlane.engine.control.topics.plan import counts

    shown = [_line(row) for row in rows if row.action != "unchanged"]
    if shown:
        print_table(("PLAN", "PROJECT", "FIELDS"), shown)
    print(", ".join(f"{count:,} {action}" for action, count in counts(rows).items()))  # noqa: T201
    sys.stdout.flush()


def _line(row: PlanRow) -> tuple[str, str, str]:
    action, project, what = row_line(row)
    return action if row.effect is None else f"{action}, {row.effect}", project, what


def _confirm(due: int, env: str) -> bool:
    """Ask for confirmation. Without a terminal it goes on, as the file was written on purpose."""
    if not sys.stdin.isatty():
        return True
    if typer.confirm(f"Write {format_count(due, 'topic')} into environment {env!r}?", err=True):
        return True
    raise EvenlaneError("nothing was written")


def _describe_rows(rows: list[PlanRow], what: str) -> str:
    listed = _inline_or_print((f"{project}: {why}") for _, project, why in map(row_line, rows))
    return f"{len(rows):,} {'topic is' if len(rows) == 1 else 'topics are'} {what}{listed}"


def _inline_or_print(lines: Iterable[str]) -> str:
    """Return a single line as part of the sentence; print several on lines of their own before it."""
    several = [*lines]
    if len(several) == 1:
        return f": {several[0]}"
    for line in several[:_MOST_LISTED]:
        print(line, file=sys.stderr)  # noqa: T201
    if len(several) > _MOST_LISTED:
        print(f"and {len(several) - _MOST_LISTED:,} more", file=sys.stderr)  # noqa: T201
    return ""


def _complain(outcome: ApplyOutcome, due: int, env: str) -> None:
    """Raise EvenlaneError unless all is written and in effect."""
    if outcome.broken:
        raise EvenlaneError(
            f"{len(outcome.written):,} of {format_count(due, 'topic', 'is', 'are')} known to be written, then:"
            f" {outcome.broken}: run the same command again to continue"
        )
    if outcome.refused:
        listed = _inline_or_print(f"{project}: {why}" for project, why in outcome.refused.items())
        raise EvenlaneError(
            f"{len(outcome.refused):,} of {format_count(due, 'topic', 'is', 'are')} not written{listed}"
        )
    if outcome.waiting:
        named = ", ".join(outcome.waiting[:_MOST_NAMED])
        raise EvenlaneError(f"{len(outcome.waiting):,} not accepted yet: {named}: {hint('topics list', env)} shows why")
