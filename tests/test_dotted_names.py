"""Names of modules and their contents in code, tests and docs exist: a rename that misses one fails here."""

import re
import subprocess
from pathlib import Path

from tests.support import ROOT

_NAME = re.compile(r"from (evenlane(?:\.\w+)+) import ([\w, ]+)|\b(evenlane(?:\.[a-z_]\w*)+)")
_HISTORY = ("CHANGELOG.md", "docs/adr/")


def _files():
    found = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.toml", "*.yml", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split()
    return [each for each in found if not each.startswith(_HISTORY) and not (ROOT / each).is_symlink()]


def _is_module(parts):
    path = ROOT.joinpath("evenlane", *parts)
    return path.is_dir() or path.with_suffix(".py").exists()


def _text(parts):
    path = ROOT.joinpath("evenlane", *parts)
    for each in (path.with_suffix(".py"), path / "__init__.py"):
        if each.exists():
            return each.read_text(encoding="utf-8")
    return ""


def _has(parts, name):
    """Whether a module contains a module or the text of a name."""
    return _is_module([*parts, name]) or re.search(rf"\b{re.escape(name)}\b", _text(parts)) is not None


def _missing(text):
    for imported, names, dotted in _NAME.findall(text):
        parts = (imported or dotted).split(".")[1:]
        if imported:
            expected = [each.split(" as ")[0].strip() for each in names.split(",") if each.strip()]
            if not _is_module(parts) or not all(_has(parts, each) for each in expected):
                yield f"{imported} {names}"
        elif _is_module(parts[:1]):
            known = max(k for k in range(1, len(parts) + 1) if _is_module(parts[:k]))
            if parts[known:] and not _has(parts[:known], parts[known]):
                yield dotted


def test_dotted_names_exist():
    found = {(each, name) for each in _files() for name in _missing(Path(ROOT, each).read_text(encoding="utf-8"))}
    assert set() == found


def test_missing_names_are_found():
    """A module, a name in a module, and an import."""
    engine, quota = "evenlane" + ".engine", "evenlane" + ".quota"  # in two pieces, as this file is checked as well
    text = f"{engine}.gone.x {engine}.errors.gone {engine}.errors from {quota}.gone import a"
    assert [f"{engine}.gone.x", f"{engine}.errors.gone", f"{quota}.gone a"] == [*_missing(text)]
