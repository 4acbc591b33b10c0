"""Report of a scenario: when bars hold, which of them decide, and their slack on the broker."""

import json

import pytest

from evenlane.engine.proof.report import Bar, Report, middle, worst


def report(*bars, where="simulator"):
    return Report("hot-burst", where, 1, 1, {"with hot": {"served": 1 / 3, "dwell_p99_ms": None}}, list(bars), 1.23456)


@pytest.mark.parametrize(
    ("value", "sign", "limit", "ok"),
    [
        (1.3, "<=", 1.3, True),
        (1.31, "<=", 1.3, False),
        (0.99, ">=", 0.99, True),
        (0.98, ">=", 0.99, False),
        (1.0, "<", 1.0, False),
        (1.0, ">", 1.0, False),
        (None, "<=", 9, False),
        (None, ">=", 0, False),
    ],
)
def test_bar_never_holds_without_a_figure(value, sign, limit, ok):
    assert ok == Bar("x", value, sign, limit).is_met


def test_only_the_products_bars_decide():
    good, bad = Bar("a", 1, "<=", 2), Bar("b", 3, "<=", 2)
    control = Bar("c", 3, "<=", 2, "control")
    assert report(good, control).has_passed
    assert not report(good, bad).has_passed


def test_ratio_on_the_broker_may_be_1_3_times_the_simulators():
    simulated = Bar("ratio", 1.1, "<=", 1.3, slack=True)
    alongside = Bar("ratio", 1.4, "<=", 1.3, slack=True).against(simulated)
    assert (pytest.approx(1.43), 1.1, 1.3, True) == (
        alongside.limit,
        alongside.simulator,
        alongside.scenario_limit,
        alongside.is_met,
    )


def test_other_bars_keep_their_limit_on_the_broker():
    alongside = Bar("served", 0.995, ">=", 0.99).against(Bar("served", 0.998, ">=", 0.99))
    assert (0.99, 0.998, 0.99) == (alongside.limit, alongside.simulator, alongside.scenario_limit)


def test_document_is_json_with_all_public_fields():
    document = report(Bar("a", 2 / 3, "<=", 2), Bar("b", None, ">=", 1, "control")).document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert {"scenario", "where", "nodes", "seed", "rounds", "arms", "bars", "seconds", "notes"} == set(document)
    assert {"served": 0.333333, "dwell_p99_ms": None} == document["arms"]["with hot"]
    assert {"name": "a", "value": 0.666667, "sign": "<=", "limit": 2.0, "ok": True, "arm": "product"} == document[
        "bars"
    ][0]
    assert (None, False, 1.2) == (document["bars"][1]["value"], document["bars"][1]["ok"], document["seconds"])


def test_middle_of_rounds_is_the_median_or_none():
    rounds = [{"a": 1.0, "b": 1.0}, {"a": 5.0, "b": None}, {"a": 2.0, "b": 3.0}]
    assert {"a": 2.0, "b": None} == middle(rounds)


def test_bar_has_the_worst_value_of_several_rounds():
    """Z6: it must hold in each of them."""
    rounds = [[Bar("most", value, "<=", 5), Bar("least", value, ">=", 5)] for value in (3, 7, 4)]
    assert [("most", 7), ("least", 3)] == [(bar.name, bar.value) for bar in worst(rounds)]
    assert worst([[Bar("most", 9, "<=", 5)], [Bar("most", None, "<=", 5)]])[0].value is None
