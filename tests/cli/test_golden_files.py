"""Each golden file has its test."""

import ast

from tests.support import ROOT
from tests.support.golden import golden_path

CLI = ROOT / "tests" / "cli"


def test_no_golden_file_is_left_over():
    expected = {
        golden_path(file, node.name)
        for file in CLI.rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set() == set(CLI.rglob("*.txt")) - expected
