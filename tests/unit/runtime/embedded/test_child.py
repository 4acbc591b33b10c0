"""The sentence about a server's exit."""

import pytest

from evenlane.engine.runtime.embedded import child


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (0, "with exit code 0"),
        (70, "with exit code 70"),
        (-15, "by signal 15 (SIGTERM)"),
        (-40, "by signal 40"),
    ],
)
def test_exit_is_described_by_signal_or_code(code, sentence):
    assert sentence == child.describe_exit(code)
