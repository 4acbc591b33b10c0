"""The log lines that the code can write, read from the code: event, level and fields."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
SHARED = {
    "message_fields": {"project", "id", "attempt", "partition", "epoch"},
    "lane_fields": {"partition", "epoch", "kind"},
    "move_fields": {kind + of for kind in ("acquired", "released", "lost") for of in ("", "_partitions")},
    "of_blocker": {"at", "handler", "project", "id", "messages", "stack"},
}


class Line(NamedTuple):
    event: str
    level: str
    fields: frozenset[str]


def written(*folders: str) -> set[Line]:
    """All lines with a constant event. A choice of two events is two lines."""
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {line for path in files for node in nodes(path) for line in _lines(node)}


@cache
def nodes(path: Path) -> list[ast.AST]:
    """The calls and constants in a file."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call | ast.Constant)]


def _lines(node: ast.AST) -> list[Line]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in LEVELS:
        return []
    if not isinstance(node.func.value, ast.Name) or node.func.value.id != "_log" or not node.args:
        return []
    fields = {name for keyword in node.keywords for name in _fields(keyword)} - {"exc_info"}
    return [Line(event, LEVELS[node.func.attr], frozenset(fields)) for event in _events(node.args[0])]


def _events(first: ast.expr) -> list[str]:
    if isinstance(first, ast.IfExp):
        return [*_events(first.body), *_events(first.orelse)]
    return [first.value] if isinstance(first, ast.Constant) else []


def _fields(keyword: ast.keyword) -> set[str]:
    if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):  # of the standard library's loggers
        return {key.value for key in keyword.value.keys if isinstance(key, ast.Constant)}
    if keyword.arg is not None:
        return {keyword.arg}
    call = keyword.value
    return SHARED.get(call.func.id, set()) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else set()
