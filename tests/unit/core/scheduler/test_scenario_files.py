"""The scheduler's decisions in readable files; scenario_file.py describes the commands.

E5, E10, E19, X3, X4, X8, X9.
"""

from pathlib import Path

import pytest

from tests.support.scheduler.scenario_file import ran
from tests.support.script import duration

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_scheduler_decides_as_the_file_says(file, update):
    text = file.read_text()
    now = ran(text)
    if update:
        file.write_text(now)
    assert text == now or update


def test_scenario_files_are_found():
    assert len(FILES) >= 12


def test_update_rewrites_only_the_output():
    text = "# Prose.\n\nnode slots=1\ntopic a qps=10\nput a/0/low x2\nrun 1s\n----\nwhatever\n"
    once = ran(text)
    assert once == ran(once)
    assert "# Prose.\n\nnode slots=1\ntopic a qps=10\nput a/0/low x2\nrun 1s\n----\n" == once[: once.index("    0.000")]


@pytest.mark.parametrize(
    ("text", "ns"), [("45ms", 45_000_000), ("1s", 10**9), ("0.5s", 500_000_000), ("2m", 12 * 10**10)]
)
def test_duration_is_parsed_in_ns(text, ns):
    assert ns == duration(text)
