"""Command `evenlane scaling`: shows how many nodes there should be, and why."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.options import CommonOptions, Json, common
from evenlane.engine.cli.output import print_json, print_table
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_BY_FLAG = re.compile(r"\bscaling_(\w+) \(flag --scaling-\1\)")
_HINT = re.compile(r"\bset scaling_(policy|target)\b")


@common
def scaling(
    given: CommonOptions,
    *,
    policy: Annotated[str | None, typer.Option("--policy", metavar="NAME", help="rules or need.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="TARGET", help="Target of need, such as 'p99 wait 2s'.")
    ] = None,
    least: Annotated[str | None, typer.Option("--min", metavar="N", help="The least number of nodes.")] = None,
    most: Annotated[str | None, typer.Option("--max", metavar="N", help="The greatest number of nodes.")] = None,
    as_json: Json = False,
) -> None:
    """Show how many nodes there should be by the policy, and why. Changes nothing.

    Reads only etcd. USED are the slots in use on average, WANTED those that the projects would use within their quotas
    if slots were free. Policy and bounds are those of the settings; the options show what others would do.

    Example:
      evenlane scaling
      evenlane scaling --policy need --target 'p99 wait 2s' --max 20
    """
    flags = {"policy": policy, "target": target, "min": least, "max": most}
    try:
        settings = given.load(**{f"scaling_{name}": value for name, value in flags.items()}).settings
    except ConfigError as error:
        raise ConfigError(_name_flags(str(error), [name for name in flags if flags[name] is not None])) from error
    from evenlane.engine.base.log_setup import setup
    from evenlane.engine.runtime.run_loop import run_loop

    setup(settings.log_format, settings.log_level)
    from evenlane.engine.admin.scaling.view import read

    document = run_loop(read(settings))
    for note in document["notes"]:
        print(f"evenlane: note: {note}", file=sys.stderr)  # noqa: T201
    if as_json:
        print_json(document)
    else:
        _print(document)


def _name_flags(text: str, given: Iterable[str]) -> str:
    """Name the flags of this command, which are shorter than their settings, in an error that one of them causes."""
    named, caused = _BY_FLAG.subn(r"--\1", text)
    if not caused:
        return text
    named = _HINT.sub(r"set --\1", named)
    for name in given:
        named = named.replace(f"scaling_{name}", f"--{name}")
    return named


def _print(document: dict[str, Any]) -> None:
    replicas, desired = document["replicas"], document["desired"]
    policy = document["policy"] if document["target"] is None else f"{document['policy']} ({document['target']})"
    what = f"keep {replicas}" if desired == replicas else f"change {replicas} to {desired}"
    print(f"{document['env']}: {format_count(len(document['nodes']), 'node')}; {policy} would {what}")  # noqa: T201
    print(f"why: {document['why']}")  # noqa: T201
    if document["blocked"]:
        print(document["blocked"])  # noqa: T201
    if document["nodes"]:
        header = ("NODE", "CPU", "CORES", "PROJECTS", "SLOTS", "USED", "WANTED", "SCALING")
        print_table(header, map(_row, document["nodes"]))
    recorded = document["recorded"]
    if recorded is not None:
        last = f"{recorded['mode']}, by node {recorded['by']} at {recorded['at']}: {recorded['desired']}"
        print(f"last look of the leader: {last}" + (f", {recorded['why']}" if recorded["why"] else ""))  # noqa: T201


def _row(node: dict[str, Any]) -> tuple[str, ...]:
    load = node["load"]
    used, wanted = ("-", "-") if load is None else (f"{load['used']:,.1f}", f"{load['wanted']:,.1f}")
    name = f"{node['id']}{' (leaving)' if node['leaving'] else ''}"
    cores = f"{node['cores']:g}" if node["cores"] else "-"  # of an older release
    return (
        name, f"{node['cpu']:.0%}", cores, f"{node['projects']:,}", f"{node['slots']:,}", used, wanted, node["scaling"],
    )  # fmt: skip
