"""The demo's result, given its turns."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from evenlane.engine.proof.demo.ledger import Ledger
from evenlane.engine.proof.demo.plan import Plan
from evenlane.engine.proof.demo.result import Result
from evenlane.engine.proof.demo.table import render_closing, render_running


def turn(arm, p99, *, in_time=100, hot=(0, 0), max_1s=0, ledger=None):
    counts = {"offered": 100, "in_time": in_time, "hot_offered": hot[0], "hot_served": hot[1]}
    p50 = None if p99 is None else p99 / 2
    return SimpleNamespace(
        arm=arm, figures=lambda: {"p50_ms": p50, "p99_ms": p99, **counts}, hot_max_1s=lambda: max_1s, elapsed_s=0.5,
        ledger=ledger or Ledger(put=10, handled=8, waiting=2),
    )  # fmt: skip


def result(*, hot_p99=(44.0, 42.0, 900.0), in_time=100, control=(800.0, 30), ledger=None):
    made = Result(Plan(20, 20))
    for p99 in hot_p99:
        made.add(turn("without hot", 40.0))
        made.add(turn("with hot", p99, in_time=in_time, hot=(2000, 100), max_1s=59, ledger=ledger))
        made.add(turn("control", control[0], in_time=control[1], hot=(2000, 700), max_1s=400))
    return made


def test_times_are_medians_and_counts_are_sums():
    document = result().document()
    assert {
        "p50_ms": 22.0,
        "p99_ms": 44.0,
        "p99_ms_without_hot": 40.0,
        "p99_ratio": 1.1,
        "served_ratio": 1.0,
    }.items() <= (document["victims"].items())
    assert {"quota_qps": 50, "burst": 10, "offered": 6000, "served": 300, "max_1s": 59} == document["hot"]
    assert {"p99_ratio": 20.0, "served_ratio": 0.3, "p99_ms": 800.0} == document["control"]
    assert {"put": 90, "handled": 72, "duplicates": 0, "dead": 0, "waiting": 18, "lost": 0} == document["ledger"]
    assert (20, Plan(20, 20).rounds, 20) == (document["projects"], document["rounds"], document["load_seconds"])


@pytest.mark.parametrize(
    ("made", "failure"),
    [
        (result(), None),
        (result(hot_p99=[80.0]), None),
        (result(hot_p99=[80.5]), "the isolation isn't shown: with hot, the victims' p99 was 2.01 times that without"),
        (result(in_time=95), None),
        (
            result(in_time=94),
            "the isolation isn't shown: with hot, 94.0% of the victims' messages were handled in time",
        ),
        (result(hot_p99=[None], in_time=0), "the isolation isn't shown: too few of the victims' messages were handled"),
        (result(ledger=Ledger(put=1234, lost=1234)), "3,702 messages are lost"),
        (result(control=(None, 0)), None),
    ],
)
def test_failed_proof_has_a_reason(made, failure):
    found = made.failure()
    assert (failure is None) == (found is None)
    assert (found or "").startswith(failure or "")


@pytest.mark.parametrize("control", [(800.0, 30), (None, 0)])
def test_output_fits_into_80_columns(control):
    made = result(control=control)
    shown = io.StringIO()
    console = Console(file=shown, width=80)
    console.print(render_running(made, turn("control", None, in_time=0, hot=(3, 1)), 0))
    console.print(render_closing(made))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in shown.getvalue()
    [row] = [line for line in lines if "with hot" in line and "│" in line][-1:]
    assert ["with", "hot", "22.0", "44.0", "100.0%", "6,000", "300", "5,700"] == row.replace("│", " ").split()
    assert "Hot put 20 times its quota, and the other 19 projects had 1.10 times the p99" in " ".join(lines)


def test_failure_replaces_the_verdict():
    shown = io.StringIO()
    Console(file=shown, width=80).print(render_closing(result(in_time=10)))
    assert "The isolation isn't shown: with hot, 10.0%" in shown.getvalue()
    assert "Hot put" not in shown.getvalue()
