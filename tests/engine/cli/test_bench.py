"""`evenlane bench`: what it prints, and its exit codes. The scenarios themselves: tests/engine/scenarios."""

import json
import os
import signal
import subprocess
import sys

import pytest

from engine.cli.main import run
from engine.scenarios import catalog
from engine.scenarios.report import Bar, Report
from engine.scenarios.scenario import Scenario
from tests.wait import until


def scenario(name, *bars):
    class Made(Scenario):
        about = "made for a test"
        sim_rounds = 3

        def simulate(self, seed, rounds, tell):
            tell(name, 0.5)
            arms = {"with hot": {"dwell_p99_ms": 45.678, "served": None, "offered": 1234.0}}
            return Report(name, "simulator", seed, rounds, arms, list(bars), 1.0, ["what to know of it"])

        async def on_broker(self, url, seed, rounds, tell):
            raise NotImplementedError

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
    [arm] = [line for line in lines if line.startswith("│ with hot")]
    assert ["with", "hot", "45.68", "-", "1,234"] == arm.replace("│", " ").split()
    [bar] = [line for line in lines if "p99 ratio" in line]
    assert ["p99", "ratio", "product", "1.05", "<=", "1.3", "ok"] == bar.replace("│", " ").split()
    assert any("FIFO: served" in line and "control" in line and "missed" in line for line in lines)
    assert "- what to know of it" in lines
    assert "seed 1, rounds 3, 1.0 s" in lines


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


def test_an_unknown_name_is_one_sentence_with_the_known_ones(capsys):
    assert 2 == run(["bench", "hotburst", "--sim"])
    names = "hot-burst, hot-slow, shares, priority, skewed-quota, scale"
    expected = f"evenlane: there is no scenario 'hotburst': there are {names}, and all for all of them\n"
    assert ("", expected) == capsys.readouterr()


@pytest.mark.parametrize(
    "arguments", [["bench"], ["bench", "shares", "--rounds", "0"], ["bench", "shares", "--seed", "x"]]
)
def test_wrong_use_is_exit_code_2(arguments, capsys):
    assert 2 == run(arguments)
    assert "" == capsys.readouterr().out


def test_help_shows_an_example_and_every_scenario(capsys):
    assert 0 == run(["bench", "--help"])
    out = capsys.readouterr().out
    assert "evenlane bench hot-burst --sim\n" in out
    assert all(name in out for name in catalog.SCENARIOS)


def test_a_real_scenario_on_the_simulator(capsys):
    """X10: one command, and the control beside it."""
    assert 0 == run(["bench", "skewed-quota", "--sim", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert {"borrowing", "each group its tenth", "no quota"} == set(document["arms"])
    assert all(bar["ok"] for bar in document["bars"])


@pytest.mark.real
async def test_sigterm_ends_it_and_leaves_neither_server_nor_files(tmp_path):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", "from engine.cli.main import main; main()", "bench", "skewed-quota"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        await until(lambda: list(tmp_path.glob("evenlane-bench-*/nats/jetstream")), 60)
        process.send_signal(signal.SIGTERM)
        assert (b"", b"") == process.communicate(timeout=60)
    assert 143 == process.returncode
    assert [] == list(tmp_path.iterdir())
