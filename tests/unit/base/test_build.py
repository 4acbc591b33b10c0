"""Compiled and pure builds: which one runs, and how to force the pure one."""

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES

from evenlane import _pure
from evenlane.engine.base import build


def test_build_is_that_of_the_core():
    """`make test-compiled` sets EVENLANE_PURE to 0, and anything else leaves it unset."""
    compiled = os.environ.get("EVENLANE_PURE") == "0"
    assert compiled is build.is_compiled()
    assert ("compiled" if compiled else "pure Python") == build.describe_build()


def test_pure_finder_prefers_the_python_file(tmp_path):
    """Python itself would load the extension module."""
    source, extension = tmp_path / "fair.py", tmp_path / f"fair{EXTENSION_SUFFIXES[0]}"
    source.touch()
    extension.touch()
    finder = _pure.SourceFinder()
    assert str(source) == finder.find_spec("evenlane.fair", [str(tmp_path)]).origin
    assert finder.find_spec("other.fair", [str(tmp_path)]) is None
    assert finder.find_spec("evenlane.absent", [str(tmp_path)]) is None


def test_variable_forces_the_pure_build(monkeypatch):
    monkeypatch.setenv("EVENLANE_PURE", "1")
    ask = "from evenlane.engine.cli.main import main; main()"
    shown = subprocess.run([sys.executable, "-c", ask, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.endswith(" (pure Python)\n")
