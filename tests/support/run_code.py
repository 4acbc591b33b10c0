"""Runs code in a Python process of its own, for what a process can do only once."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent


def run_code(code: str) -> str:
    """The output of the code. Fails with its errors if it raises."""
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout
