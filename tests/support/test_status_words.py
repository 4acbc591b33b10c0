"""Tests of the comparison of statuses: it finds other words and wrong figures, and only those."""

import pytest

from evenlane.engine.core.status.status import Status
from tests.support.status_words import different_words, words, wrong_figures

OVER = Status(
    "over_quota", "warning", "over quota 3 x",
    "it offers 3 x its quota: 59.5/s arrive, 20/s are allowed; 1,316 wait, the oldest for 1m 5s",
    "its producer slows down, or a quota of 60/s clears it in 1h, which is 3 x the quota",
)  # fmt: skip
FAILING = Status(
    "failing", "warning", "failing 25 %",
    "25 % of its attempts fail, 10.1/s of 40/s, the last one with RuntimeError: boom", "mend its handler",
)  # fmt: skip
DELETED = Status("deleted", "warning", "deleted", "its topic was deleted while messages waited: 1,316 wait", "drop it")
RATES = {"arriving": 59.5, "handled": 29.9, "failed": 10.1, "expired": 0.0}


def answer(*statuses, **figures):
    first, *also = (status.describe() for status in statuses)
    return {"status": first, "also": also, "backlog": 1316, "oldest_seconds": 65.2, **RATES, **figures}


def different(status, **other):
    return different_words({"page": [status.describe()], "why": [status._replace(**other).describe()]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("paused since 29 Nov, 02:59 UTC: 40 wait, the oldest for 7.9s", "paused since #: # wait"),
        ("paused since 01 Dec, 00:00 UTC: nothing waits", "paused since #: # wait"),
        ("1 waits, the oldest for 2h 3m, gone in 4m; it waits", "# wait, gone in #; it waits"),
        ("or a quota of 1,200/s clears it in 1h, which", "or a quota of #/s clears it in #, which"),
    ],
)
def test_words_without_figures(text, expected):
    """X13: the same words have the same form, whatever their figures."""
    assert expected == words(text)


def test_same_words_pass():
    """X13: with figures of another moment, or on one surface only."""
    later = OVER.sentence.replace("1,316 wait, the oldest for 1m 5s", "1 waits").replace("59.5", "60")
    assert [] == different(OVER, sentence=later, label="over quota 2.9 x")
    assert [] == different_words({"page": [OVER.describe(), FAILING.describe()], "why": [FAILING.describe()]})


@pytest.mark.parametrize(
    "other",
    [
        {"severity": "critical"},
        {"label": "over its quota"},
        {"sentence": "it waits for its quota"},
        {"sentence": OVER.sentence.replace(" wait", " have expired")},
        {"remedy": ""},
    ],
)
def test_other_words_are_found(other):
    """X13: in the severity, the label, the sentence and what to do."""
    [found] = different(OVER, **other)
    assert found.startswith("why says")


def test_right_figures_pass():
    """X12: as the overview has them, and as `why` does."""
    assert [] == wrong_figures(answer(FAILING, OVER, DELETED))
    assert [] == wrong_figures({**answer(OVER), **dict.fromkeys(RATES), "rates": RATES})


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        (OVER, {"arriving": 50.0}),
        (OVER, {"backlog": 1317}),
        (OVER, {"oldest_seconds": 5.0}),
        (OVER._replace(label="over quota 2 x"), {}),
        (FAILING, {"failed": 2.0, "handled": 38.0}),
        (FAILING, {"handled": 20.0}),
        (FAILING._replace(label="failing 75 %"), {}),
        (DELETED, {"backlog": 0}),
    ],
)
def test_wrong_figures_are_found(status, wrong):
    """X12: each sentence whose figures are others than those of its answer."""
    assert 1 == len(wrong_figures(answer(status, **wrong)))
