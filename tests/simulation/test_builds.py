"""The compiled build decides as the pure one does."""

import os
import re
import subprocess
import sys

from tests.support import ROOT

_SEEDS = "0:30"
_OF_THE_PROCESS = re.compile(rb'"pid":\d+|build=(compiled|pure Python)|[\d.]+ ms of CPU')


def _trace(pure):
    """All events of these seeds, without what tells one process from another."""
    command = [sys.executable, "-m", "tests.simulation", "--seeds", _SEEDS, "--trace"]
    environ = os.environ | {"EVENLANE_PURE": pure}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=True, timeout=250)
    return _OF_THE_PROCESS.sub(b"", done.stdout).splitlines()


def test_each_build_has_the_same_traces():
    """L: bit by bit. Where no compiled build is installed, two processes of the pure one are compared."""
    compiled, pure = _trace("0"), _trace("1")
    assert len(pure) > 5_000
    assert pure == compiled
