"""Command `evenlane plan size`: the size of a cluster for a load."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, cast

import typer

from evenlane.engine.cli.options import Json, number, seconds
from evenlane.engine.cli.output import print_json, print_table, with_examples

if TYPE_CHECKING:
    from evenlane.engine.admin.plan.costs import Build
    from evenlane.engine.admin.plan.size import Figure

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number") from error


def size(
    *,
    qps: Annotated[
        float, typer.Option(parser=_decimal, metavar="N", help="Messages per second, at the peak.", show_default=False)
    ],
    handler_ms: Annotated[
        float, typer.Option(parser=_decimal, metavar="MS", help="Time of a handler, on average.", show_default=False)
    ],
    handler_cpu_ms: Annotated[
        float, typer.Option(parser=_decimal, metavar="MS", help="The part of it in which the handler computes.")
    ] = 0.0,
    concurrency: Annotated[int, typer.Option(parser=number, metavar="W", help="Slots of a node.")] = 64,
    message_bytes: Annotated[int, typer.Option(parser=number, metavar="N", help="Size of a message's body.")] = 1_000,
    retention: Annotated[
        float, typer.Option(parser=seconds, metavar="DURATION", help="How long messages may pile up.")
    ] = 3_600.0,
    replicas: Annotated[int, typer.Option(parser=number, metavar="N", help="Replicas of streams.")] = 3,
    growth: Annotated[
        float, typer.Option(parser=_decimal, metavar="X", help="How many times more nodes there will ever be.")
    ] = 4.0,
    build: Annotated[str, typer.Option(metavar="NAME", help="pure or compiled.")] = "pure",
    as_json: Json = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Compute nodes, slots, partitions, memory, disk, and the load of NATS and etcd; contacts nothing.

    The figures follow from measured costs and from assumptions, which are printed with each. They are a start:
    measure your own handlers and disks.

    Example:
      evenlane plan size --qps 1000 --handler-ms 100
      evenlane plan size --qps 20000 --handler-ms 5 --handler-cpu-ms 1 --message-bytes 4000 --retention 6h
    """
    del debug
    from evenlane.engine.admin.plan.size import Load
    from evenlane.engine.admin.plan.size import size as sized

    figures = sized(
        Load(
            qps, handler_ms / 1e3, handler_cpu_ms / 1e3, concurrency, message_bytes, retention, replicas, growth,
            cast("Build", build),
        )
    )  # fmt: skip
    if as_json:
        print_json(
            {
                each.name.replace(" ", "_"): {"value": each.value, "unit": each.unit, "because": each.because}
                for each in figures
            }
        )
    else:
        print_table(("FIGURE", "VALUE", "BECAUSE"), [(each.name, _value(each), each.because) for each in figures])


size.__doc__ = with_examples(size.__doc__)


def _value(figure: Figure) -> str:
    if figure.unit.startswith("bytes"):
        step = min(int(math.log(max(figure.value, 1), 1_000)), len(_UNITS) - 1)
        return f"{figure.value / 1_000**step:,.3g} {_UNITS[step]}{figure.unit.removeprefix('bytes')}"
    number_ = f"{figure.value:,}" if isinstance(figure.value, int) else f"{float(f'{figure.value:.2g}'):,g}"
    return f"{number_}{figure.unit}"
