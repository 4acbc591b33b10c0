"""Asks before a command removes what can't be restored."""

from __future__ import annotations

import sys

import typer

from evenlane.engine.errors import ConfigError, EvenlaneError


def require_terminal(command: str, deed: str) -> None:
    """Refuse to ask where nobody answers. `deed` is what `command` does: "permanently drops all of acme". Raises
    ConfigError.
    """
    if not sys.stdin.isatty():
        raise ConfigError(f"{command} {deed}: without a terminal, confirm with --yes")


def confirm_by_name(project: str, deed: str) -> None:
    """Ask for the project's name, on stderr. Raises EvenlaneError for any other answer."""
    typed = typer.prompt(f"This {deed}. To continue, type the project's name", err=True)
    if typed != project:
        raise EvenlaneError(f"that is not {project!r}: nothing was dropped")


def confirm_by_yes(deed: str, undone: str = "nothing was deleted") -> None:
    """Ask for a yes, on stderr. Raises EvenlaneError for any other answer, which says what is `undone` then."""
    typed = typer.prompt(f"This {deed}. To continue, type yes", default="", show_default=False, err=True)
    if typed.strip().lower() != "yes":
        raise EvenlaneError(f"the answer was not yes: {undone}")
