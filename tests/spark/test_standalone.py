"""A standalone cluster from what `evenlane[spark]` brings: master, worker, and a report on them."""

import asyncio
import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest

from evenlane.engine.runtime.embedded.ports import free_port
from tests.ledger.world import ProcessWorld
from tests.spark.source.records import Published, record
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full]
COUNT = """
import sys
from evenlane.spark.session import session
with session("count", master=sys.argv[1], settings={"spark.executor.memory": "512m"}) as spark:
    print(spark.read.format("evenlane").option("nats", sys.argv[2]).load().count())
"""


@contextmanager
def started(log, *arguments):
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "evenlane.spark.standalone", *arguments], stderr=out)
        try:
            yield
        finally:
            process.terminate()
            assert 143 == process.wait()


def program(*arguments):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout


async def test_report_on_a_standalone_cluster(tmp_path):
    """X7: executors read NATS by the data source, and a report is the same as without a cluster."""
    address, log = ["--host", "127.0.0.1", "--port", str(free_port()), "--webui-port", "0"], tmp_path / "master.log"
    master = f"spark://127.0.0.1:{address[3]}"
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        with ExitStack() as stack:
            stack.enter_context(started(log, "master", *address))
            await until(lambda: "I have been elected leader" in log.read_text(), 120)
            worker = ["--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0"]
            stack.enter_context(started(tmp_path / "worker.log", "worker", master, *worker))
            await until(lambda: "Registering worker" in log.read_text(), 120)
            await stream.put(*(record(n, groups=1) for n in range(1, 6)))
            nats = world.servers.nats.url
            assert "5\n" == await asyncio.to_thread(program, "-c", COUNT, master, nats)
            out = tmp_path / "report"
            command = [
                "-c",
                "from evenlane.engine.cli.main import main; main()",
                "report",
                "--nats",
                nats,
                "--etcd",
                "127.0.0.1:9",
                "--out",
                str(out),
            ]
            await asyncio.to_thread(program, *command, "--window", "5m", "--master", master)
            assert [] != json.loads((out / "report.json").read_text())["quality"]
