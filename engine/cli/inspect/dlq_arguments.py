"""Arguments of `evenlane dlq`, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from evenlane.engine.cli.options import number
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from evenlane.engine.admin.dead_letters.by_error import Selection


def positive(text: str) -> int:
    found = number(text)
    if not 1 <= found < 2**63:
        raise typer.BadParameter(f"{text!r} is not a whole number from 1")
    return found


def parse_rate(text: str) -> float:
    from evenlane.engine.base.config.values import rate

    try:
        return rate(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Project = Annotated[str, typer.Argument(metavar="PROJECT", help="A project, or _stray: messages that match no queue.")]
Seq = Annotated[
    int | None,
    typer.Option("--seq", parser=positive, metavar="SEQ", help="The dead letter with this number (dlq list)."),
]
All = Annotated[bool, typer.Option("--all", help="All dead letters that exist now.")]
ErrorKey = Annotated[
    str | None, typer.Option("--error", metavar="KEY", help="Those with this error (dlq list --by-error).")
]


def check(project: str) -> None:
    from evenlane.engine.base.names import check_project
    from evenlane.engine.core.message.copies import UNROUTABLE_PROJECT

    if project != UNROUTABLE_PROJECT:
        check_project(project)


def choose(what: str, project: str, seq: int | None, error: str | None, *, everything: bool) -> Selection:
    """Return the selection; without meaning if `seq` names one dead letter. Raises ConfigError."""
    from evenlane.engine.admin.dead_letters.by_error import ALL, Selection

    if (seq is not None) + (error is not None) + everything != 1:
        raise ConfigError(
            f"{what} needs one of --seq, --error and --all: `evenlane dlq {what} {project} --seq SEQ` for one,"
            f" `--error KEY` for all with the same error, `--all` for all"
        )
    return ALL if error is None else Selection(error)
