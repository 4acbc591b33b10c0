"""docs/reference/logs.md lists all log events of the code, with their level and fields."""

import ast

import pytest

from tests.support import ROOT
from tests.support.log_lines import nodes, written
from tests.support.log_tables import DECISIONS, OTHERS

DOCUMENTED = DECISIONS | OTHERS
TESTS = [
    ROOT / "tests/unit/test_logs_decisions.py",
    ROOT / "tests/unit/cluster/subscriptions/test_registry.py",
    ROOT / "tests/unit/node/settle/test_shared_removal.py",
    ROOT / "tests/unit/cluster/subscriptions/test_seen_publisher.py",
    ROOT / "tests/unit/node/partitions/test_reset_takeover.py",
    ROOT / "tests/unit/node/partitions/test_gap_reader.py",
    ROOT / "tests/unit/control/leader/test_gathering.py",
    ROOT / "tests/unit/control/leader/test_plan_computer.py",
    ROOT / "tests/unit/control/leader/test_scaling_controller.py",
    ROOT / "tests/unit/node/settle/test_logs_messages.py",
    ROOT / "tests/integration/runtime/test_rotation.py",
    ROOT / "tests/integration/store/jetstream/test_logs.py",
]


def constants(*paths):
    return {node.value for path in paths for node in nodes(path) if isinstance(node, ast.Constant)}


@pytest.fixture(scope="module")
def lines():
    return written("engine", "ring")


def test_each_event_above_debug_is_documented(lines):
    logged = {line for line in lines - written("engine/http") if line.level != "debug"}
    missing = {line for line in logged if line not in DOCUMENTED and line.event != "node stopped"}
    assert set() == missing


def test_each_documented_event_is_in_the_code():
    code = constants(*(ROOT / "engine").rglob("*.py"), *(ROOT / "ring").rglob("*.py"))
    assert set() == {line.event for line in DOCUMENTED} - code


def test_tables_are_found():
    """Otherwise the tests above would compare nothing."""
    assert len(DECISIONS) > 30
    assert len(OTHERS) > 50


def test_each_decision_event_has_a_test():
    assert set() == {line.event for line in DECISIONS} - constants(*TESTS)


def test_each_field_has_one_name(lines):
    fields = {field for line in lines for field in line.fields}
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
