"""The text of exceptions that handlers raise, whatever these are."""

import pytest

from evenlane.engine.core.message.error_text import failure, format_traceback


class Mute(Exception):
    def __str__(self):
        raise SystemExit


def raised(error, cause=None):
    with pytest.raises(type(error)) as caught:
        raise error from cause
    return caught.value


def test_traceback_has_causes_first():
    text = format_traceback(raised(ValueError("second"), raised(KeyError("first"))))
    first, second = text.split("\n\n")
    assert ("KeyError: 'first'", "ValueError: second") == (first.splitlines()[-1], second.splitlines()[-1])
    assert ["Traceback (most recent call last):"] * 2 == [first.splitlines()[0], second.splitlines()[0]]


def test_traceback_of_a_circle_of_causes_ends():
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert 5 == format_traceback(one).count("Traceback")


def test_traceback_of_a_recursion_is_bounded():
    def deeper():
        deeper()

    with pytest.raises(RecursionError) as caught:
        deeper()
    assert len(format_traceback(caught.value).splitlines()) < 200


def test_exception_whose_text_fails_has_a_text():
    assert "Mute: (its text isn't available)" == failure(Mute(), with_text=True)
    assert format_traceback(raised(Mute())).endswith("Mute: (its text isn't available)")


def test_own_text_is_shown_in_any_case():
    error = ValueError("the payload")
    error.for_logs = "no answer"
    assert ["ValueError: no answer"] * 2 == [failure(error, with_text=each) for each in (True, False)]


def test_type_alone_has_no_text():
    assert "ValueError" == failure(ValueError("the payload"), with_text=False)
