"""Numbers and their nouns in sentences."""

import pytest

from evenlane.engine.base.plural import format_count


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 messages wait"), (1, "1 message waits"), (1.2, "1 message waits"), (2, "2 messages wait"),
     (12_345, "12,345 messages wait")],
)  # fmt: skip
def test_noun_and_verb_agree_with_the_number(number, text):
    assert text == format_count(number, "message", "waits", "wait")
    assert text.partition(" wait")[0] == format_count(number, "message")
