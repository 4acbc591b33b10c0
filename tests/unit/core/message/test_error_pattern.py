"""Errors of one cause become equal; those of different causes stay apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.message.error_pattern import unify_error

CASES = [
    ("RuntimeError: no stock for s0", "RuntimeError: no stock for s<n>"),
    ("ValueError: no such order: 17", "ValueError: no such order: <n>"),
    ("KeyError: 'customer-7'", "KeyError: 'customer-<n>'"),
    ("KeyError: 'name'", "KeyError: 'name'"),
    ("order 1,234.50 is too large", "order <n> is too large"),
    ("order -12 is gone", "order -<n> is gone"),
    ("2 of 3 items", "<n> of <n> items"),
    ("job 3f0c9a52-1d7e-4a0b-9c55-0242ac120002 is unknown", "job <id> is unknown"),
    ("at 0x7f3e5c1d2a90", "at <id>"),
    ("commit 9bc1d04", "commit <id>"),
    ("commit a3f9c2b", "commit <id>"),
    ("token 01HZX3V9K8QWERTY", "token <id>"),
    ("sha256 differs", "sha<n> differs"),
    ("no answer from shop.example within 2.5 s", "no answer from shop.example within <n> s"),
    ("took 250ms, 12 MiB, 98%", "took <n>ms, <n> MiB, <n>%"),
    ("since 2026-11-22T16:00:00.123Z", "since <time>"),
    ("on 2026-11-22 16:00:00+01:00 and at 10:11:12", "on <time> and at <time>"),
    ("refused by 10.0.0.7:5432", "refused by <address>"),
    ("unknown user jane.doe+x@example.com", "unknown user <email>"),
    ("HTTP 503 from https://shop.example/orders/17", "HTTP 503 from https://shop.example/orders/<n>"),
    ("HTTP 404 from https://shop.example/orders/18", "HTTP 404 from https://shop.example/orders/<n>"),
    ("status=500, status code: 429", "status=500, status code: 429"),
    ("failed 5 times", "failed <n> times"),
    ("two\n lines\tof 1 text ", "two lines of <n> text"),
    ("größe 12 zu groß", "größe <n> zu groß"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_ids_and_numbers_are_made_one(text, expected):
    """K4: fifty dead letters of one cause are one line."""
    assert expected == unify_error(text)


def test_errors_of_one_cause_are_equal_and_others_differ():
    assert unify_error("no stock for s0") == unify_error("no stock for s221")
    assert unify_error("KeyError: 'name'") != unify_error("KeyError: 'address'")
    assert unify_error("HTTP 503 from x") != unify_error("HTTP 404 from x")


@given(st.text(max_size=2_000))
def test_any_text_gives_one_short_line_that_stays(text):
    once = unify_error(text)
    assert len(once) <= 300
    assert "\n" not in once
    assert once == unify_error(once)


def test_long_texts_take_no_longer_than_their_beginning():
    """Text of a tenant: nothing in it makes the search quadratic."""
    for sign in ("0", "a0", "a@", "1,", "0:", "-", "."):
        assert len(unify_error(sign * 100_000)) <= 300
