"""Rules for the rooms that `make wheel` compiles."""

import ast
import os
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

from tests.support import ROOT

_CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
_HOOK = _CONFIG["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]
_INCLUDED, _EXCLUDED = (GitIgnoreSpec.from_lines(_HOOK[name]) for name in ("include", "exclude"))
# (the `__aexit__` of an `async with` must not suspend: those of locks, semaphores and timeouts don't)
_SUSPENDS = ast.Await | ast.AsyncFor | ast.AsyncWith | ast.Yield | ast.YieldFrom


def _compiled() -> list[str]:
    rooms = [path for room in ("engine", "priority", "quota") for path in sorted((ROOT / room).rglob("*.py"))]
    names = [f"evenlane/{path.relative_to(ROOT)}" for path in rooms]
    return [name for name in names if _INCLUDED.match_file(name) and not _EXCLUDED.match_file(name)]


@pytest.mark.parametrize("name", _compiled())
def test_no_exception_handler_suspends(name):
    """mypyc leaves the handled exception in place while a compiled coroutine is suspended inside `except` or `finally`:
    each later exception of the thread would get it as its context, and keep it alive.
    """
    tree = ast.parse(Path(ROOT / name).read_text())
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try | ast.TryStar)]
    guarded = [part for node in tries for part in (*node.handlers, *node.finalbody)]
    assert [] == [inner.lineno for part in guarded for inner in ast.walk(part) if isinstance(inner, _SUSPENDS)]


@pytest.mark.parametrize("name", _compiled())
def test_caught_exceptions_of_several_types_have_several_names(name):
    """mypyc gives the name the type of its first clause, and raises TypeError for an exception of another type."""
    tree = ast.parse(Path(ROOT / name).read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        caught = [
            node for node in ast.walk(function) if isinstance(node, ast.ExceptHandler) and node.name and node.type
        ]
        types = {(node.name, ast.unparse(node.type)) for node in caught}
        assert len({each for each, _ in types}) == len(types), f"{function.name}: {sorted(types)}"


@pytest.mark.parametrize("room", _HOOK["include"])
def test_each_room_is_compiled(room):
    """All of its modules, or none: `make test-compiled` sets EVENLANE_PURE to 0, and anything else leaves it unset."""
    of_room = [name for name in _compiled() if name.startswith(room.removeprefix("/"))]
    assert of_room
    origins = [find_spec(name.removesuffix(".py").replace("/", ".")).origin for name in of_room]
    compiled = {origin.endswith(tuple(EXTENSION_SUFFIXES)) for origin in origins}
    assert compiled == {os.environ.get("EVENLANE_PURE") == "0"}
