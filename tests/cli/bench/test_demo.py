"""`evenlane demo`: a short run on real servers. No timing is asserted, as tests share their machine.

The demo's arms take turns of a second, so on a busy machine a fair scheduler may look unfair. The run here therefore
passes whether or not isolation is shown; tests/integration/proof/isolation fails if there is none. An unfair scheduler
never looks fair, which is tested here.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest

from tests.support.stacks import LISTEN, end_of
from tests.support.until import until

pytestmark = pytest.mark.real

_CODE = f"{LISTEN}from evenlane.engine.cli.main import main; main()"
_UNFAIR = (
    "from evenlane.engine.proof.demo import turn; from evenlane.engine.proof.baselines import schedulers;"
    " turn.scheduler = lambda _arm: schedulers.FifoScheduler(schedulers.stored_at);"
)
_SMALL = ("--seconds", "3", "--projects", "5", "--json")


@pytest.fixture
def started(tmp_path):
    """Starts a demo with its temporary files in `tmp_path / "files"`."""
    files = tmp_path / "files"
    files.mkdir()
    processes = []

    def start(*arguments, before=""):
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(files)}
        process = subprocess.Popen(
            [sys.executable, "-c", before + _CODE, "demo", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, cwd=tmp_path,
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_short_run_accounts_for_every_message(started, tmp_path):
    """X10, E18, L: the hot project gets only its quota, its other messages wait, and none is lost."""
    demo = started(*_SMALL)
    out, err = end_of(demo, 200)
    document = json.loads(out)
    assert {"victims", "hot", "control", "ledger", "seconds"} <= document.keys()
    victims, hot, control, ledger = (document[key] for key in ("victims", "hot", "control", "ledger"))
    assert {"p50_ms", "p99_ms", "p99_ms_without_hot", "p99_ratio", "served_ratio"} <= victims.keys()
    assert {"quota_qps", "offered", "served", "max_1s"} <= hot.keys()
    assert {"p99_ratio", "served_ratio"} <= control.keys()
    assert {"put", "handled", "duplicates", "dead", "lost"} <= ledger.keys()

    assert (0, 0, 0) == (ledger["lost"], ledger["dead"], ledger["duplicates"])
    assert ledger["put"] == ledger["handled"] + ledger["waiting"]
    # three arms have the same victims, two of them have hot
    assert ledger["put"] == 3 * victims["offered"] + 2 * hot["offered"]
    assert ledger["waiting"] >= hot["offered"] - hot["served"] > 0
    assert 0 < hot["max_1s"] <= hot["quota_qps"] + hot["burst"] + 1

    shown = victims["p99_ratio"] is not None and victims["p99_ratio"] <= 2 and victims["served_ratio"] >= 0.95
    assert (0 if shown else 1) == demo.returncode
    assert shown or err.startswith("evenlane: the isolation isn't shown: ")
    assert [] == [*(tmp_path / "files").iterdir()]


@pytest.mark.full
def test_unfair_scheduler_shows_no_isolation(started):
    """X10: the demo fails with the control's scheduler in the product's place."""
    out, err = end_of(started(*_SMALL, before=_UNFAIR), 200)
    document = json.loads(out)
    assert 0 == document["ledger"]["lost"]
    assert document["hot"]["max_1s"] > document["hot"]["quota_qps"] + document["hot"]["burst"] + 1
    assert err.startswith("evenlane: the isolation isn't shown: ")


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.full), (signal.SIGINT, 130)]
)
async def test_signal_ends_demo_without_servers_and_files(started, tmp_path, number, code):
    demo = started("--seconds", "60")
    me = psutil.Process(demo.pid)
    files = tmp_path / "files"

    def serves():
        with suppress(FileNotFoundError):  # a folder vanished during the search: an arm deletes its streams
            return len(me.children()) == 2 and any(files.glob("*/*/jetstream/*/streams/LANES_*"))

    await until(serves, 60)
    servers = me.children(recursive=True)
    demo.send_signal(number)
    out, _ = end_of(demo, 60)
    assert (code, "") == (demo.returncode, out)
    assert [] == [*files.iterdir()]
    await until(lambda: not any(server.is_running() for server in servers))


WRONG = r"""
demo --seconds 2.9
demo --projects 1
demo --projects 5001
demo --rate 9
"""


def test_wrong_use_is_one_sentence(transcript):
    transcript.fail(WRONG)
    transcript.check()
