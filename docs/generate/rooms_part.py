"""ARCHITECTURE.md: the rooms of the engine and who imports whom, from the imports themselves."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from markup import code

ENGINE = Path(__file__).parents[2] / "engine"
_PREFIX = "evenlane.engine."


def made() -> str:
    arrows = _reduced(_imports())
    lines = [f"    {room} --> {other}" for room in sorted(arrows) for other in sorted(arrows[room])]
    return code("\n".join(["flowchart TD", *lines]), "mermaid")


def _imports() -> dict[str, set[str]]:
    """The rooms that each room imports. Imports for types count, because readers must follow them, too."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(ENGINE.rglob("*.py")):
        room = _room(path.relative_to(ENGINE).parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(_PREFIX):
                other = _room(tuple(node.module.removeprefix(_PREFIX).split(".")))
                if room and other and other != room:
                    found[room].add(other)
    return found


def _room(parts: tuple[str, ...]) -> str:
    """The room of a module; "" for modules outside the rooms (errors, the version)."""
    return parts[0] if (ENGINE / parts[0]).is_dir() else ""


def _reduced(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without arrows that follow from others: a room may import all that lies below it."""
    below = {room: _below(room, arrows) for room in arrows}
    return {
        room: {other for other in others if not any(other in below.get(each, ()) for each in others)}
        for room, others in arrows.items()
    }


def _below(room: str, arrows: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    open_ = [*arrows.get(room, ())]
    while open_:
        if (each := open_.pop()) not in found:
            found.add(each)
            open_ += arrows.get(each, ())
    return found
