"""Lists the tests of each requirement: `make rows`. Docstrings name the codes, which
docs/contributing/requirements.md defines.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
LEGEND = ROOT / "docs" / "contributing" / "requirements.md"
PACKAGES = ("engine", "quota", "priority", "ring", "spark", "dashboards")

_ROW = re.compile(r"^\| ([A-Z]\d*|\d+) \| (.+) \|$", re.MULTILINE)
_CODE = re.compile(r"(?<![\w.@/-])([A-Z]\d{1,2})(?![\w-])")
_FAULTS = re.compile(r"\b[Ff]aults?(?: rows?)? (\d+(?:(?:, | and | to )\d+)*)")
_PROMISES = re.compile(r"(?<![\w`'])([LDOVQWM])(?=[,:.)]|$| and )", re.MULTILINE)


class Docstring(NamedTuple):
    test: str
    """`tests/unit/test_x.py::TestY::test_z`, or a part of it for a module or class."""
    text: str


@cache
def legend() -> dict[str, str]:
    """Code -> meaning. The code of a fault is `fault 3`."""
    return {f"fault {code}" if code.isdigit() else code: meaning for code, meaning in _ROW.findall(LEGEND.read_text())}


def named(text: str) -> set[str]:
    """The codes in a docstring. The letter of a promise counts only in a list of codes."""
    faults = {f"fault {number}" for match in _FAULTS.finditer(text) for number in re.findall(r"\d+", match[1])}
    head = re.split(r"[:.]", text, maxsplit=1)[0]
    lists = [head + ":", *re.findall(r"\([^)]*\)", text)]
    promises = {
        code
        for part in lists
        if all(word in _LISTED or _CODE.fullmatch(word) for word in re.findall(r"[\w-]+", part))
        for code in _PROMISES.findall(part)
    }
    return set(_CODE.findall(text)) | faults | promises


_LISTED = {*"LDOVQWM", "and", "fault", "faults", "Fault", "row", "rows", *map(str, range(100))}


def docstrings(*folders: str) -> Iterator[Docstring]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            for path, node in _nodes(ast.parse(file.read_text()), name):
                if text := ast.get_docstring(node):
                    yield Docstring(path, text)


def _nodes(node: ast.AST, path: str) -> Iterator[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield path, node
        for child in getattr(node, "body", ()):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _nodes(child, f"{path}::{child.name}")


def shown() -> dict[str, list[str]]:
    """Each row of the legend, in its order, with the tests that name it."""
    found: dict[str, list[str]] = defaultdict(list)
    for each in docstrings("tests"):
        if "/test_" in each.test or each.test.startswith(("tests/contract", "tests/simulation")):
            for code in named(each.text):
                found[code].append(each.test)
    return {code: found[code] for code in legend()}


def main(codes: list[str]) -> None:
    """Print all rows, or those of these codes, with their tests."""
    rows = shown()
    for code, tests in rows.items():
        if codes and code not in codes:
            continue
        print(f"{code}: {legend()[code]}")  # noqa: T201
        print(*(f"    {test}" for test in tests or ["no test shows this row"]), sep="\n")  # noqa: T201
    if not codes:
        print("\nno test:", ", ".join(code for code, tests in rows.items() if not tests) or "none")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
