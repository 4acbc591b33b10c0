"""Handoff, takeover, fencing and rejoining as text; tests/support/ownership/script.py describes the commands.

Z1, Z5, O, P5, P6, E14.
"""

from pathlib import Path

import pytest

from tests.support.ownership.script import ran

FILES = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_nodes_do_what_the_script_says(file, update):
    text = file.read_text()
    now = ran(text)
    if update:
        file.write_text(now)
    assert text == now or update


def test_scripts_are_found():
    assert {"fencing", "handoff", "lost_answer", "rejoin", "takeover"} <= {file.stem for file in FILES}
