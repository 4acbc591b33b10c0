"""The legend of requirement codes is complete: docs/contributing/requirements.md."""

import re

from tests.support import ROOT, rows
from tests.support.rows import PACKAGES, docstrings, legend, named

NOT_SHOWN: set[str] = set()
"""Not built yet."""


def test_codes_in_docstrings_are_in_the_legend():
    unknown = [(each.test, code) for each in docstrings("tests", *PACKAGES) for code in named(each.text) - {*legend()}]
    assert [] == unknown


def test_each_row_has_a_test_except_the_known_ones():
    """`make rows` lists the tests of each row."""
    without = {code for code, tests in rows.shown().items() if not tests}
    assert NOT_SHOWN == without


def test_codes_of_a_docstring_are_found():
    """The code of a promise, a single character, counts only in a list of codes."""
    assert {"L", "D", "Z1", "fault 3"} == named("L, D, Z1, fault 3: all of it. V: no code.")
    assert {"E5", "W"} == named("Which queues wait while a backlog comes in (E5, W).")
    assert {"fault 19", "fault 20"} == named("Whoever writes it (faults 19 and 20).")
    assert {"Q"} == named("Q.") == named("Q")
    assert set() == named("A message, and D is a promise; `make -L`. PartitionLead of S3-like R3x.")


def test_page_on_testing_names_existing_files():
    page = (ROOT / "docs" / "contributing" / "testing.md").read_text()
    rooms = "unit|contract|integration|cli|simulation|ledger|oracles|support"
    names = re.findall(rf"`((?:tests/)?(?:{rooms})/[^`* ]*)`", page)
    assert len(names) > 40
    assert [] == [name for name in names if not (ROOT / "tests" / name.removeprefix("tests/")).exists()]
