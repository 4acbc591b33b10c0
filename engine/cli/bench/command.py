"""Command `evenlane bench`: scenarios that prove the scheduler, on a simulator or on a real nats-server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from evenlane.engine.cli.options import Json, number
from evenlane.engine.cli.output import print_json, with_examples
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.cli.progress import ProgressDisplay
    from evenlane.engine.proof.report import Report
    from evenlane.engine.proof.scenario import Progress, Scenario

_ALL = "all"
_MOST_ROUNDS = 100


def _rounds(text: str) -> int:
    if not 1 <= (found := number(text)) <= _MOST_ROUNDS:
        raise typer.BadParameter(f"{text!r} is not a whole number from 1 to {_MOST_ROUNDS}")
    return found


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A scenario, or all.", show_default=False)],
    *,
    sim: Annotated[
        bool, typer.Option("--sim", help="Run on a virtual clock: it takes seconds, and no server.")
    ] = False,
    seed: Annotated[int, typer.Option(metavar="N", parser=number, help="The same seed, the same load.")] = 1,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", parser=_rounds, help="Repetitions; figures are medians.")
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", parser=number, help="Run over N nodes, each with the load of one."),
    ] = None,
    backlog: Annotated[
        int | None,
        typer.Option(
            "--backlog",
            metavar="N",
            parser=number,
            help="For rebalance: N messages in each lane of the killed node.",
        ),
    ] = None,
    as_json: Json = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Run a scenario and its unfair control, and compare the figures with the bars.

    NAME is hot-burst, hot-slow, shares, reserve, priority, skewed-quota, scale, rebalance, live, delay, push, or
    all; the documentation describes them under "Scenarios: the proof, and how to run it". The first six can run over
    several nodes, each a process. Starts its own NATS in a temporary folder and removes it. Exit code 1 if the product
    misses a bar.

    Example:
      evenlane bench hot-burst --sim
      evenlane bench hot-burst --nodes 3
      evenlane bench rebalance --backlog 5200 --rounds 10
      evenlane bench all --json > figures.json
    """
    del debug
    scenarios = _choose(name, nodes, backlog)
    from evenlane.engine.base.log_setup import setup
    from evenlane.engine.cli.bench.table import show
    from evenlane.engine.cli.progress import ProgressDisplay

    setup("auto", "error")
    reports: list[Report] = []
    for scenario in scenarios:
        with ProgressDisplay(scenario.name) as shown:
            report = _run(scenario, shown, seed, rounds, sim=sim)
        reports.append(report)
        if not as_json:
            show(report, scenario.about)
    if as_json:
        documents = [report.document() for report in reports]
        print_json({"scenarios": documents} if name == _ALL else documents[0])
    if not all(report.has_passed for report in reports):
        raise typer.Exit(1)


def _choose(name: str, nodes: int | None, backlog: int | None) -> Sequence[Scenario]:
    """Return the chosen scenarios. Raises ConfigError."""
    from evenlane.engine.proof.registry import SCENARIOS

    if name == _ALL:
        if backlog is not None:
            raise ConfigError(f"--backlog is for one scenario, not for {_ALL}")
        if nodes is not None:
            raise ConfigError(f"--nodes is for one scenario, not for {_ALL}: not all can run over several nodes")
        return [each() for each in SCENARIOS.values()]
    if name not in SCENARIOS:
        raise ConfigError(
            f"there is no scenario {name!r}: choose one of {', '.join(SCENARIOS)}, or {_ALL} for all of them"
        )
    scenario = SCENARIOS[name]()
    if backlog is not None:
        scenario = scenario.with_backlog(backlog)
    return [scenario if nodes is None else scenario.over(nodes)]


def _run(scenario: Scenario, shown: ProgressDisplay, seed: int, rounds: int | None, *, sim: bool) -> Report:
    furthest = 0.0

    def progress(what: str, share: float) -> None:
        nonlocal furthest
        furthest = max(furthest, share)  # concurrent arms report alternately; a step back would spoil the time estimate
        shown.update(furthest, what=what)

    if sim:
        from evenlane.engine.base.garbage_collector import tune_gc

        tune_gc()
        return scenario.simulate(seed, rounds or scenario.sim_rounds, progress)
    return _run_on_broker(scenario, progress, seed, rounds or scenario.broker_rounds)


def _run_on_broker(scenario: Scenario, progress: Progress, seed: int, rounds: int) -> Report:
    import signal

    from evenlane.engine.base.extras import require_extra
    from evenlane.engine.cli.signals import run_until_signal
    from evenlane.engine.runtime.run_loop import run_loop

    require_extra("servers", "evenlane bench without --sim needs the servers")
    report: Report = run_loop(run_until_signal(_run_with_server(scenario, progress, seed, rounds), signal.SIGTERM))
    return report


async def _run_with_server(scenario: Scenario, progress: Progress, seed: int, rounds: int) -> Report:
    import logging
    import tempfile
    from pathlib import Path

    from evenlane.engine.runtime.embedded.nats import NatsServer

    with tempfile.TemporaryDirectory(prefix="evenlane-bench-") as folder:
        server = NatsServer(Path(folder), fast=True)
        progress("starting NATS", 0.0)
        try:
            await server.start()
            return await scenario.run_on_broker(server.url, seed, rounds, progress)
        except BaseException:
            # Arms may still be connected while the server stops; their log entries would be noise.
            logging.getLogger("nats").setLevel(logging.CRITICAL)
            raise
        finally:
            await server.stop()


bench.__doc__ = with_examples(bench.__doc__)
