"""P10: the systemd unit of a node: its options, its command, and the time that a drain has."""

import configparser
import shutil
import subprocess

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cli.errors import WRONG_USE
from evenlane.engine.cli.main import root
from tests.support import ROOT

pytestmark = pytest.mark.source

UNIT = ROOT / "deploy/systemd/evenlane-node.service"
SUPERVISOR_S = 5  # how much longer than `drain_grace` a supervisor waits for a node (docs/reference/cli.md)
MOST_EXPOSED = 3.0  # of 10, as `systemd-analyze security` counts; up to 4 is "OK"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd isn't installed")


@pytest.fixture
def service():
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(UNIT)
    return parser["Service"]


def test_command_is_one_of_the_cli(service):
    program, *arguments = service["ExecStart"].split()
    assert "/evenlane" == program[-9:]
    name = arguments.pop(0)
    root().get_command(None, name).make_context(name, arguments)  # raises for an unknown option


def test_drain_ends_before_the_kill(service):
    """A node gets SIGTERM, and SIGKILL only after its drain and the end of its supervisor."""
    assert ("SIGTERM", "mixed") == (service["KillSignal"], service["KillMode"])
    assert int(service["TimeoutStopSec"]) > Settings().drain_grace + SUPERVISOR_S


def test_it_is_started_again_unless_that_is_useless(service):
    assert ("always", str(WRONG_USE)) == (service["Restart"], service["RestartPreventExitStatus"])


@needs_systemd
def test_systemd_takes_each_line(tmp_path):
    """With a program at the place of the command's."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/evenlane").symlink_to("/bin/true")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/evenlane", str(tmp_path)))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    about_it = [line for line in verified.stderr.splitlines() if UNIT.name in line]
    assert (0, []) == (verified.returncode, about_it)


@needs_systemd
def test_it_is_hardened():
    """systemd's own count of what the process could reach."""
    subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", str(UNIT)],
        capture_output=True, check=True,
    )  # fmt: skip
