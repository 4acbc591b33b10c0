"""`make bench` compares with the last recorded run, by ratios."""

from pathlib import Path

import pytest

from benchmarks.ratios import NOISE, RECORDED, Record, Spread, compare, noise_of, ratios_of


def test_a_ratio_is_taken_round_by_round():
    """E16: what else the machine does in a round meets both arms of it."""
    figures = {"node": [50.0, 90.0], "bare": [100.0, 100.0], "again": [80.0, 110.0], "fetch": [20.0, 30.0]}
    ratios = ratios_of(figures)
    assert Spread((0.5, 0.9)) == ratios["node / bare"]
    assert "0.70 (0.50 to 0.90)" == str(ratios["node / bare"])
    assert {"node / bare", "node / fetch", NOISE} == ratios.keys()
    assert pytest.approx(0.2) == noise_of(ratios)


def record(median: float, noise: float) -> Record:
    return Record.of({"node / bare": Spread((median,)), NOISE: Spread((1 + noise,))})


@pytest.mark.parametrize(
    ("now", "again", "words"),
    [
        (0.9, 1.02, "+12%: MORE than the noise (identical code differed by up to 5%)."),
        (0.9, 0.85, "+12%: within the noise (identical code differed by up to 15%)."),
        (0.6, 1.02, "-25%: MORE than the noise (identical code differed by up to 5%)."),
        (0.784, 1.02, "-2%: within the noise (identical code differed by up to 5%)."),
    ],
)
def test_a_difference_is_judged_by_the_larger_noise_of_both_runs(now, again, words):
    """P1"""
    ratios = {"node / bare": Spread((now,)), NOISE: Spread((again,))}
    *_, sentence = compare(ratios, record(0.8, 0.05))
    assert f"node / bare: {now:.2f}, recorded 0.80, {words}" == sentence


def test_no_verdict_without_the_pair_of_identical_arms():
    """P1"""
    then = Record.of({"node / bare": Spread((0.8,))})
    *_, sentence = compare({"node / bare": Spread((0.8,))}, then)
    assert "node / bare: 0.80, recorded 0.80, +0%; the noise is unknown without the arms bare and again." == sentence
    assert ["Nothing is recorded yet: --record does."] == list(compare({}, None))


def test_a_record_is_read_as_it_was_written(tmp_path: Path):
    """P1"""
    path = tmp_path / "recorded.json"
    assert None is Record.read(path)
    record(0.8, 0.05).write(path)
    assert record(0.8, 0.05) == Record.read(path)


def test_the_recorded_run_holds_every_ratio():
    """P1"""
    then = Record.read(RECORDED)
    assert then is not None
    assert {"node / bare", "CPU a message, node / bare", NOISE} <= then.ratios.keys()
