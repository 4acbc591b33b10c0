"""Imports Evenlane's modules from their Python files although compiled ones are installed: `EVENLANE_PURE=1`."""

from __future__ import annotations

import sys
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class SourceFinder(MetaPathFinder):
    """Finds the Python files of this package, never its extension modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("evenlane."):
            return None
        found = (_folder(entry).find_spec(fullname, target) for entry in path or ())
        return next((spec for spec in found if spec is not None), None)


@cache
def _folder(path: str) -> FileFinder:
    return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))


def import_from_source() -> None:
    """Affects modules that are imported from now on."""
    sys.meta_path.insert(0, SourceFinder())
