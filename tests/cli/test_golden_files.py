"""Golden files belong to tests."""

import ast

from tests.support import ROOT
from tests.support.golden import golden_path

CLI = ROOT / "tests" / "cli"


def test_each_golden_file_has_a_test():
    expected = {
        golden_path(file, node.name)
        for file in CLI.rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set() == set(CLI.rglob("*.txt")) - expected
