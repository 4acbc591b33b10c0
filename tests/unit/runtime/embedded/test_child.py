"""What is said of a server's end."""

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
def test_an_end_is_told_by_its_signal_or_exit_code(code, sentence):
    assert sentence == child.how(code)
