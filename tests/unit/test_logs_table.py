"""docs/reference/logs.md lists what the code says, all of it, with its level and fields."""

import ast

from tests.support import ROOT
from tests.support.log_lines import nodes, written
from tests.support.log_tables import DECISIONS, OTHERS

DOCUMENTED = DECISIONS | OTHERS
TESTS = [
    ROOT / "tests/unit/test_logs_decisions.py",
    ROOT / "tests/unit/node/settle/test_logs_messages.py",
    ROOT / "tests/integration/store/jetstream/test_logs.py",
]


def constants(*paths):
    return {node.value for path in paths for node in nodes(path) if isinstance(node, ast.Constant)}


def test_every_line_above_debug_is_in_a_table():
    inside = {line for line in written("engine", "ring") - written("engine/http") if line.level != "debug"}
    missing = {line for line in inside if line not in DOCUMENTED and line.event != "node stopped"}
    assert set() == missing


def test_every_row_is_a_line_that_the_code_has():
    code = constants(*(ROOT / "engine").rglob("*.py"), *(ROOT / "ring").rglob("*.py"))
    assert set() == {line.event for line in DOCUMENTED} - code


def test_the_tables_are_read():
    """Else the two above would compare nothing."""
    assert len(DECISIONS) > 30
    assert len(OTHERS) > 50


def test_every_decision_is_one_that_a_test_makes():
    assert set() == {line.event for line in DECISIONS} - constants(*TESTS)


def test_no_field_has_two_names():
    fields = {field for line in written("engine", "ring") for field in line.fields}
    assert set() == fields & {
        "tenant",
        "topic_name",
        "lane",
        "holder",
        "message",
        "body",
        "key_value",
        "headers",
        "payload",
    }
