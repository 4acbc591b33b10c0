"""Numbers of things in sentences."""

import pytest

from evenlane.engine.base.plural import counted


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 messages wait"), (1, "1 message waits"), (1.2, "1 message waits"), (2, "2 messages wait"),
     (12_345, "12,345 messages wait")],
)  # fmt: skip
def test_one_is_singular(number, words):
    """Because "1 messages" is a fault of grammar."""
    assert words == counted(number, "message", "waits", "wait")
    assert words.partition(" wait")[0] == counted(number, "message")
