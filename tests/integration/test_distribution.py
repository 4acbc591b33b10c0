"""What the wheel and the sdist install: one import package that no other distribution can replace."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from evenlane import __all__ as public_names
from tests.support import ROOT

ROOMS = ("engine", "quota", "priority", "ring", "spark", "dashboards")

_BUILD = """
import sys
from hatchling import build
print(build.build_sdist(sys.argv[1]), build.build_wheel(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The sdist and the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    return [folder / name for name in _python(_BUILD, folder, cwd=ROOT).split()]


@pytest.fixture(scope="module")
def built(dist):
    """The sdist's and the wheel's files, by their paths below the distribution's folder."""
    sdist, wheel = dist
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    return in_sdist, set(zipfile.ZipFile(wheel).namelist())


def _python(code: str, *args: object, cwd: Path) -> str:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=60).stdout


def _tracked() -> set[str]:
    """The files of the rooms that git knows, as the distribution names them."""
    listed = subprocess.run(["git", "ls-files", *ROOMS], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {f"evenlane/{name}" for name in listed.splitlines()}


def test_wheel_and_sdist_hold_each_file_of_each_room(built):
    """Linked folders are easily left out, and a checkout without symlinks builds an empty wheel."""
    in_sdist, in_wheel = built
    tracked = _tracked()
    assert len(tracked) > 500
    assert not tracked - in_sdist
    assert not tracked - in_wheel


def test_the_wheel_installs_one_name(built):
    """`priority` is hypercorn's, too."""
    _, in_wheel = built
    assert {name.partition("/")[0] for name in in_wheel} == {"evenlane", "evenlane-0.1.0.dist-info"}


def test_from_the_wheel_alone_the_report_command_is_found(dist, tmp_path):
    """The engine doesn't know it: the wheel's entry point does."""
    _, wheel = dist
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    shown = _python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r});"
        "from evenlane.engine.cli import entry_points, main;"
        "print(entry_points.__file__, entry_points.found()['report'], main.run(['report', '--help']))",
        cwd=tmp_path,
    )
    expected = f"{tmp_path}/evenlane/engine/cli/entry_points.py evenlane.spark.command:report 0"
    assert expected == shown.splitlines()[-1]
    assert shown.startswith("Usage: evenlane report [OPTIONS]")


def test_hypercorn_has_its_own_priority(tmp_path):
    """In one environment, each gets its own package of that name."""
    shown = _python(
        "import hypercorn.protocol.h2, priority, evenlane.priority.fair;"
        "print(priority.PriorityTree.__name__, evenlane.priority.fair.VirtualTime.__name__)",
        cwd=tmp_path,
    )
    assert shown.split() == ["PriorityTree", "VirtualTime"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_found_as_a_folder_says_how_to_import_it(room):
    """Else each of its modules would be loaded twice, with classes that aren't equal."""
    with pytest.raises(subprocess.CalledProcessError) as failed:
        _python(f"import {room}", cwd=ROOT)
    assert failed.value.stderr.rstrip().endswith(f"ImportError: import evenlane.{room}, not {room}")


def test_each_public_name_is_there():
    import evenlane

    for name in public_names:
        assert getattr(evenlane, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        evenlane.Nothing  # noqa: B018
