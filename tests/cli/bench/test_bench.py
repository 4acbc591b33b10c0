"""`evenlane bench`: its output and exit codes. tests/unit/proof tests the scenarios."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from evenlane.engine.cli.bench import table
from evenlane.engine.cli.main import run
from evenlane.engine.cli.progress import ProgressDisplay
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
            return Report(name, "simulator", seed, rounds, arms, list(bars), 1.0, ["a note"])

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
def test_table_shows_figures_and_bars(capsys):
    assert 0 == run(["bench", "good", "--sim"])
    out, err = capsys.readouterr()
    assert "" == err
    lines = out.splitlines()
    assert "good on the simulator: made for a test" in lines
    assert [["with hot"], ["dwell p99 ms", "45.68"], ["served", "-"], ["offered", "1,234"]] == cells(lines)[:4]
    [bar] = [line for line in lines if "p99 ratio" in line]
    assert ["p99", "ratio", "product", "1.05", "<=", "1.3", "ok"] == bar.replace("│", " ").split()
    assert any("FIFO: served" in line and "control" in line and "missed" in line for line in lines)
    assert "- a note" in lines
    assert "seed 1, rounds 3, 1.0 s" in lines


def cells(lines):
    """The cells in each row of a table, without empty ones."""
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


def test_arms_too_wide_for_one_table_are_split_evenly(monkeypatch, capsys):
    lines = shown(report_of(WIDE, FIGURES), 80, monkeypatch, capsys)
    assert max(map(len, lines)) <= 80
    waits = [row for row in cells(lines) if row[0] == "wait p50 ms"]
    assert [["wait p50 ms", *["38,610.3"] * 4]] * 2 == waits
    assert WIDE == [arm for row in cells(lines) if row[0] in (WIDE[0], WIDE[4]) for arm in row]


def test_arm_names_wrap_before_the_table_is_split(monkeypatch, capsys):
    lines = shown(report_of(WIDE[:5], FIGURES), 80, monkeypatch, capsys)
    assert max(map(len, lines)) <= 80
    assert [["wait p50 ms", *["38,610.3"] * 5]] == [row for row in cells(lines) if row[0] == "wait p50 ms"]
    assert any("without" in row for row in cells(lines))


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
def test_table_of_any_width_truncates_no_figure(width, monkeypatch, capsys):
    lines = shown(report_of(WIDE, {"us": 1.5}), width, monkeypatch, capsys)
    assert 8 == sum(row.count("1.5") for row in cells(lines) if row[0] == "us")


def test_progress_never_goes_back(monkeypatch, capsys):
    """Arms that run at the same time report progress independently."""

    class Parallel(scenario("parallel")):
        def simulate(self, seed, rounds, on_progress):
            for share in (0.2, 0.1, 0.3):
                on_progress("an arm", share)
            return super().simulate(seed, rounds, lambda _what, _share: None)

    shares = []
    monkeypatch.setattr(catalog, "SCENARIOS", {"parallel": Parallel})
    monkeypatch.setattr(ProgressDisplay, "update", lambda _, share, what: shares.append(share))
    assert 0 == run(["bench", "parallel", "--sim"])
    assert [0.2, 0.2, 0.3] == shares
    capsys.readouterr()


@pytest.mark.usefixtures("scenarios")
def test_json_is_one_document(capsys):
    assert 0 == run(["bench", "good", "--sim", "--json", "--seed", "7", "--rounds", "2"])
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert "" == err
    assert ("good", "simulator", 7, 2) == tuple(document[name] for name in ("scenario", "where", "seed", "rounds"))
    assert [True, False] == [bar["ok"] for bar in document["bars"]]


@pytest.mark.usefixtures("scenarios")
def test_all_runs_each_scenario_and_fails_if_one_does(capsys):
    assert 1 == run(["bench", "all", "--sim", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert ["good", "bad"] == [each["scenario"] for each in document["scenarios"]]


@pytest.mark.usefixtures("scenarios")
def test_missed_bar_fails_unless_it_is_a_control(capsys):
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


def test_wrong_use_is_one_sentence(transcript):
    transcript.fail(WRONG)
    transcript.check()


def test_report_over_several_nodes_says_so(monkeypatch, capsys):
    """X10: the same scenario with the same bars on three nodes."""
    monkeypatch.setattr(catalog, "SCENARIOS", {"hot-burst": lambda: HotBurst(0.02)})
    run(["bench", "hot-burst", "--sim", "--nodes", "3", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert 3 == document["nodes"]
    run(["bench", "hot-burst", "--sim", "--json"])
    assert 2.5 < document["arms"]["fifo"]["offered"] / json.loads(capsys.readouterr().out)["arms"]["fifo"]["offered"]
    run(["bench", "hot-burst", "--sim", "--nodes", "3"])
    assert "hot-burst on the simulator over 3 nodes:" in capsys.readouterr().out


def test_help_lists_every_scenario(capsys):
    assert 0 == run(["bench", "--help"])
    out = capsys.readouterr().out
    assert "evenlane bench hot-burst --sim\n" in out
    assert all(name in out for name in catalog.SCENARIOS)


def test_scenario_runs_on_the_simulator_with_its_control(capsys):
    """X10"""
    assert 0 == run(["bench", "skewed-quota", "--sim", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert {"borrowing", "each group its tenth", "no quota", "3 nodes"} <= set(document["arms"])
    assert all(bar["ok"] for bar in document["bars"])


# A third of the scenario, as the simulator runs it first.
SMALLER = """
from evenlane.engine.cli.main import main
from evenlane.engine.proof import registry
from evenlane.engine.proof.scenarios.skewed_quota import SkewedQuota
registry.SCENARIOS["skewed-quota"] = lambda: SkewedQuota(0.3)
main()
"""


@pytest.mark.real
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.full)]
)
async def test_signal_during_arms_leaves_no_message_server_or_file(number, code, tmp_path):
    """Some arms are still connected when the server stops."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", SMALLER, "bench", "skewed-quota"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        lanes = "evenlane-bench-*/nats/jetstream/*/streams/*/msgs/*.blk"
        await until(lambda: list(tmp_path.glob(lanes)), 60)
        process.send_signal(number)
        assert (b"", b"") == process.communicate(timeout=60)
    assert code == process.returncode
    assert [] == list(tmp_path.iterdir())
