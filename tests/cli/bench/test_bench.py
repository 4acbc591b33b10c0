"""`evenlane bench`: what it prints, and its exit codes. The scenarios themselves: tests/unit/proof."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from evenlane.engine.cli.bench import command as bench
from evenlane.engine.cli.bench import table
from evenlane.engine.cli.main import run
from evenlane.engine.cli.progress import Shown
from evenlane.engine.proof import registry as catalog
from evenlane.engine.proof.report import Bar, Report
from evenlane.engine.proof.scenario import Scenario
from evenlane.engine.proof.scenarios.hot import HotBurst
from tests.support.until import until


def scenario(name, *bars):
    class Made(Scenario):
        about = "made for a test"
        sim_rounds = 3

        def simulate(self, seed, rounds, on_progress):
            on_progress(name, 0.5)
            arms = {"with hot": {"dwell_p99_ms": 45.678, "served": None, "offered": 1234.0}}
            return Report(name, "simulator", seed, rounds, arms, list(bars), 1.0, ["what to know of it"])

        sim_round = broker_round = sim_bars = None

    Made.name = name
    return Made


GOOD, MISSED = Bar("p99 ratio", 1.05, "<=", 1.3), Bar("served", 0.5, ">=", 0.99)
CONTROL = Bar("FIFO: served", 0.6, "<=", 0.05, "control")


@pytest.fixture
def scenarios(monkeypatch):
    made = {"good": scenario("good", GOOD, CONTROL), "bad": scenario("bad", GOOD, MISSED)}
    monkeypatch.setattr(catalog, "SCENARIOS", made)
    return made


@pytest.mark.usefixtures("scenarios")
def test_the_table_shows_figures_and_bars(capsys):
    assert 0 == run(["bench", "good", "--sim"])
    out, err = capsys.readouterr()
    assert "" == err
    lines = out.splitlines()
    assert "good on the simulator: made for a test" in lines
    assert [["with hot"], ["dwell p99 ms", "45.68"], ["served", "-"], ["offered", "1,234"]] == cells(lines)[:4]
    [bar] = [line for line in lines if "p99 ratio" in line]
    assert ["p99", "ratio", "product", "1.05", "<=", "1.3", "ok"] == bar.replace("│", " ").split()
    assert any("FIFO: served" in line and "control" in line and "missed" in line for line in lines)
    assert "- what to know of it" in lines
    assert "seed 1, rounds 3, 1.0 s" in lines


def cells(lines):
    """Of the rows of a table; empty ones are left out."""
    rows = [line.replace("┃", "│").split("│")[1:-1] for line in lines if line[:1] in ("│", "┃")]
    return [[cell.strip() for cell in row if cell.strip()] for row in rows]


def report_of(arms, figures):
    return Report("made", "simulator", 1, 1, {arm: dict(figures) for arm in arms}, [GOOD], 1.0)


def shown(report, width, monkeypatch, capsys):
    """The lines on a terminal of that width."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": str(width), "LINES": "25"}.items():
        monkeypatch.setenv(name, value)
    table.show(report, "a test")
    return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()


WIDE = [f"{share} {what}" for share in (0.8, 1.2) for what in ("without low", "with low", "ageing", "one queue")]
FIGURES = {"wait_p50_ms": 38_610.31, "served": 0.75}


def test_arms_that_do_not_fit_side_by_side_are_in_equal_parts(monkeypatch, capsys):
    lines = shown(report_of(WIDE, FIGURES), 80, monkeypatch, capsys)
    assert max(map(len, lines)) <= 80
    waits = [row for row in cells(lines) if row[0] == "wait p50 ms"]
    assert [["wait p50 ms", *["38,610.3"] * 4]] * 2 == waits
    assert WIDE == [arm for row in cells(lines) if row[0] in (WIDE[0], WIDE[4]) for arm in row]


def test_names_of_arms_are_broken_between_words_before_the_table_is(monkeypatch, capsys):
    lines = shown(report_of(WIDE[:5], FIGURES), 80, monkeypatch, capsys)
    assert max(map(len, lines)) <= 80
    assert [["wait p50 ms", *["38,610.3"] * 5]] == [row for row in cells(lines) if row[0] == "wait p50 ms"]
    assert any("without" in row for row in cells(lines))


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
def test_no_figure_is_lost_or_cut_however_narrow_it_is(width, monkeypatch, capsys):
    lines = shown(report_of(WIDE, {"us": 1.5}), width, monkeypatch, capsys)
    assert 8 == sum(row.count("1.5") for row in cells(lines) if row[0] == "us")


def test_progress_takes_no_step_back():
    """Arms that run at once each tell how far they are."""

    class Reporting(scenario("telling")):
        def simulate(self, seed, rounds, on_progress):
            for share in (0.2, 0.1, 0.3):
                on_progress("all at once", share)
            return super().simulate(seed, rounds, lambda _what, _share: None)

    completed = []
    shown = Shown("telling")
    shown.update = lambda share, what: completed.append(share)
    bench._run(Reporting(), shown, 1, None, sim=True)
    assert [0.2, 0.2, 0.3] == completed


@pytest.mark.usefixtures("scenarios")
def test_json_is_one_document_and_nothing_else(capsys):
    assert 0 == run(["bench", "good", "--sim", "--json", "--seed", "7", "--rounds", "2"])
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert "" == err
    assert ("good", "simulator", 7, 2) == tuple(document[name] for name in ("scenario", "where", "seed", "rounds"))
    assert [True, False] == [bar["ok"] for bar in document["bars"]]


@pytest.mark.usefixtures("scenarios")
def test_all_is_a_document_of_all_and_fails_if_one_does(capsys):
    assert 1 == run(["bench", "all", "--sim", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert ["good", "bad"] == [each["scenario"] for each in document["scenarios"]]


@pytest.mark.usefixtures("scenarios")
def test_a_bar_that_the_product_misses_is_exit_code_1_and_one_that_a_control_holds_is_not(capsys):
    assert 1 == run(["bench", "bad", "--sim"])
    assert 0 == run(["bench", "good", "--sim"])
    capsys.readouterr()


WRONG = r"""
bench
bench hotburst --sim
bench shares --rounds 0
bench shares --seed x
bench scale --nodes 3 --sim
bench push --nodes 3 --sim
bench skewed-quota --nodes 2 --sim
bench shares --nodes 0 --sim
bench all --nodes 3 --sim
"""


def test_what_is_wrong_is_one_sentence(transcript):
    transcript.fail(WRONG)
    transcript.check()


def test_over_nodes_the_report_says_so(monkeypatch, capsys):
    """X10: the same scenario, the same bars, on three nodes."""
    monkeypatch.setattr(catalog, "SCENARIOS", {"hot-burst": lambda: HotBurst(0.02)})
    run(["bench", "hot-burst", "--sim", "--nodes", "3", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert 3 == document["nodes"]
    run(["bench", "hot-burst", "--sim", "--json"])
    assert 2.5 < document["arms"]["fifo"]["offered"] / json.loads(capsys.readouterr().out)["arms"]["fifo"]["offered"]
    run(["bench", "hot-burst", "--sim", "--nodes", "3"])
    assert "hot-burst on the simulator over 3 nodes:" in capsys.readouterr().out


def test_help_shows_an_example_and_every_scenario(capsys):
    assert 0 == run(["bench", "--help"])
    out = capsys.readouterr().out
    assert "evenlane bench hot-burst --sim\n" in out
    assert all(name in out for name in catalog.SCENARIOS)


def test_a_real_scenario_on_the_simulator(capsys):
    """X10: one command, and the control beside it."""
    assert 0 == run(["bench", "skewed-quota", "--sim", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert {"borrowing", "each group its tenth", "no quota", "3 nodes"} <= set(document["arms"])
    assert all(bar["ok"] for bar in document["bars"])


@pytest.mark.real
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_among_arms_that_are_at_work_says_nothing(number, code, tmp_path):
    """Some of them are still connected when the server goes."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", "from evenlane.engine.cli.main import main; main()", "bench", "skewed-quota"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        lanes = "evenlane-bench-*/nats/jetstream/*/streams/*/msgs/*.blk"
        await until(lambda: list(tmp_path.glob(lanes)), 60)
        process.send_signal(number)
        assert (b"", b"") == process.communicate(timeout=60)
    assert code == process.returncode
    assert [] == list(tmp_path.iterdir())


@pytest.mark.real
async def test_sigterm_ends_it_and_leaves_neither_server_nor_files(tmp_path):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", "from evenlane.engine.cli.main import main; main()", "bench", "skewed-quota"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        await until(lambda: list(tmp_path.glob("evenlane-bench-*/nats/jetstream")), 60)
        process.send_signal(signal.SIGTERM)
        assert (b"", b"") == process.communicate(timeout=60)
    assert 143 == process.returncode
    assert [] == list(tmp_path.iterdir())
