"""Compiled and pure builds: which one runs, and how to force the pure one."""

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

from evenlane import _pure
from evenlane.engine.base import build

CORE = "evenlane.engine.core.scheduler.fair"


def test_build_is_that_of_the_core():
    is_extension = (find_spec(CORE).origin or "").endswith(tuple(EXTENSION_SUFFIXES))
    assert is_extension is build.is_compiled()
    assert build.describe_build() in {"compiled", "pure Python"}


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
