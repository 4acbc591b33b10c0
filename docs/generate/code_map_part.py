"""docs/contributing/code-map.md: the rooms and their modules, from the first sentences of their docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from markup import joined, table

ROOT = Path(__file__).parents[2]
_ROOMS = ("engine", "priority", "quota", "ring", "spark", "dashboards")
# A period ends a sentence if a space and a capital letter follow, unless it belongs to an initial, as in "M. Nygard".
_END_OF_SENTENCE = re.compile(r"(?<![^\w][A-Z])\.(?=\s+[A-Z`]|$)")


def made() -> str:
    return joined(_described(ROOT / name) for name in _ROOMS)


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, without its period, on one line."""
    paragraph, _, _ = text.partition("\n\n")
    return _END_OF_SENTENCE.split(" ".join(paragraph.split()), maxsplit=1)[0]


def _described(room: Path) -> str:
    """A room, then its sub-rooms in the same form."""
    path = room.relative_to(ROOT)
    rooms = sorted(each.parent for each in room.glob("*/__init__.py"))
    modules = sorted(each for each in room.glob("*.py") if each.name != "__init__.py")
    rows = [*map(_room_row, rooms), *map(_module_row, modules)]
    return joined(
        [
            f"{'#' * (len(path.parts) + 1)} `{path.as_posix()}/`",
            f"{_sentence(room / '__init__.py')}.",
            table(("in it", "what it is or does"), rows) if rows else "",
            *map(_described, rooms),
        ]
    )


def _room_row(room: Path) -> tuple[str, str]:
    return f"[`{room.name}/`](#{_anchor(room)})", _sentence(room / "__init__.py")


def _module_row(module: Path) -> tuple[str, str]:
    return f"`{module.name}`", _sentence(module)


def _anchor(room: Path) -> str:
    """The anchor of a room's heading, as GitHub and the site make it."""
    return room.relative_to(ROOT).as_posix().replace("/", "")


def _sentence(module: Path) -> str:
    """Raises SystemExit for a module without a docstring: each module must say what it is."""
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    if not text:
        raise SystemExit(f"{module.relative_to(ROOT)} has no docstring")
    return first_sentence(text)
