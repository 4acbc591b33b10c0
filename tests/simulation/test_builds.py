"""The compiled and the pure Python build make the same decisions."""

import os
import re
import subprocess
import sys

from evenlane.engine.base.build import is_compiled
from tests.support import ROOT

_SEEDS = "0:30" if is_compiled() else "0:6"
_OF_THE_PROCESS = re.compile(rb"build=(compiled|pure Python)|[\d.]+ ms of CPU")


def _trace(pure):
    """All events of these seeds, without the values that differ between processes."""
    command = [sys.executable, "-m", "tests.simulation", "--seeds", _SEEDS, "--trace"]
    environ = os.environ | {"EVENLANE_PURE": pure}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=True, timeout=250)
    return _OF_THE_PROCESS.sub(b"", done.stdout).splitlines()


def test_each_build_has_the_same_traces():
    """L: byte for byte. Without a compiled build, the test compares two processes of the pure Python build."""
    compiled, pure = _trace("0"), _trace("1")
    assert len(pure) > 2_000
    assert pure == compiled
