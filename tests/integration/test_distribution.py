"""The contents of wheel and sdist: one import package that no other distribution can replace."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from evenlane import __all__ as public_names
from tests.support import ROOT

pytestmark = pytest.mark.source

ROOMS = ("engine", "quota", "priority", "ring", "spark", "dashboards")

_BUILD = """
import sys
from hatchling import build
print(build.build_sdist(sys.argv[1]), build.build_wheel(sys.argv[1]))
"""


def _python(code: str, *args: object, cwd: Path) -> str:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=250).stdout


def _tracked() -> set[str]:
    """The files of the rooms that git tracks, by their names in the distribution."""
    listed = subprocess.run(["git", "ls-files", *ROOMS], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {f"evenlane/{name}" for name in listed.splitlines()}


def test_wheel_and_sdist_are_complete_and_wheel_has_report_command(tmp_path):
    """Linked folders are easily omitted, and a checkout without symlinks builds an empty wheel. The wheel installs a
    single name, as `priority` is also hypercorn's, and its entry point adds the report command.
    """
    sdist, wheel = (tmp_path / name for name in _python(_BUILD, tmp_path, cwd=ROOT).split())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
        archive.extractall(installed)
    tracked = _tracked()
    assert len(tracked) > 500
    assert not tracked - in_sdist
    assert not tracked - in_wheel
    assert {name.partition("/")[0] for name in in_wheel} == {"evenlane", "evenlane-0.1.0.dist-info"}
    shown = _python(
        f"import sys; sys.path.insert(0, {str(installed)!r});"
        "from evenlane.engine.cli import entry_points, main;"
        "print(entry_points.__file__, entry_points.found()['report'], main.run(['report', '--help']))",
        cwd=installed,
    )
    expected = f"{installed}/evenlane/engine/cli/entry_points.py evenlane.spark.command:report 0"
    assert expected == shown.splitlines()[-1]
    assert shown.startswith("Usage: evenlane report [OPTIONS]")


def test_hypercorn_keeps_its_own_priority(tmp_path):
    """In one environment, each gets its own package of that name."""
    shown = _python(
        "import hypercorn.protocol.h2, priority, evenlane.priority.fair;"
        "print(priority.PriorityTree.__name__, evenlane.priority.fair.VirtualTime.__name__)",
        cwd=tmp_path,
    )
    assert shown.split() == ["PriorityTree", "VirtualTime"]


def test_room_imported_as_top_level_folder_names_its_package():
    """Otherwise each of its modules would be loaded twice, with classes that aren't equal."""
    shown = _python(
        "import importlib\n"
        f"for room in {ROOMS!r}:\n"
        "    try:\n"
        "        importlib.import_module(room)\n"
        "    except ImportError as error:\n"
        "        print(error)",
        cwd=ROOT,
    )
    assert [f"import evenlane.{room}, not {room}" for room in ROOMS] == shown.splitlines()


def test_each_public_name_is_exported():
    import evenlane

    for name in public_names:
        assert getattr(evenlane, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        evenlane.Nothing  # noqa: B018
