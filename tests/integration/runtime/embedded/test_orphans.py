"""No server outlives its parent, however that ends."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.pair import Servers
from tests.support import ROOT
from tests.support.until import until

pytestmark = pytest.mark.real

PARENT = ROOT / "tests" / "support" / "embedded" / "parent.py"


async def start_parent(data_dir: Path, then: str) -> tuple[asyncio.subprocess.Process, list[psutil.Process]]:
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        PARENT,
        data_dir,
        then,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    line = await asyncio.wait_for(parent.stdout.readline(), 60)
    servers = [psutil.Process(pid) for pid in json.loads(line)]
    return parent, servers


def is_gone(process: psutil.Process) -> bool:
    """Not running; a zombie is: what remains of it waits for its new parent, not for us."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def all_gone(servers: list[psutil.Process]) -> None:
    await until(lambda: all(map(is_gone, servers)), what=f"the end of {servers}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
async def test_a_parent_that_dies_of_a_signal_takes_its_servers_along(tmp_path, number):
    parent, servers = await start_parent(tmp_path, "stay")
    assert [False, False] == [is_gone(server) for server in servers]
    parent.send_signal(number)
    assert -number == await parent.wait()
    await all_gone(servers)


async def test_a_parent_that_exits_without_stopping_them_takes_its_servers_along(tmp_path):
    parent, servers = await start_parent(tmp_path, "leave")
    assert 0 == await parent.wait()
    await all_gone(servers)


async def test_ctrl_c_reaches_the_parent_alone_which_stops_its_servers_in_order(tmp_path):
    parent, servers = await start_parent(tmp_path, "stay")
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
    assert -signal.SIGINT == await parent.wait()
    assert [True, True] == [is_gone(server) for server in servers]
    log = (tmp_path / "nats.log").read_text()
    assert ('Trapped "terminated" signal' in log, "Server Exiting" in log) == (True, True)


async def test_a_server_whose_parent_is_gone_before_it_begins_never_begins(tmp_path):
    """The parent-death signal reaches only those who asked for it in time."""
    command = [
        sys.executable,
        "-I",
        "-S",
        child.GUARD,
        str(os.getppid()),
        "/usr/bin/touch",
        tmp_path / "begun",
    ]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, output = await process.communicate()
    assert (1, f"the parent process {os.getppid()} is gone\n") == (process.returncode, output.decode())
    assert not (tmp_path / "begun").exists()


async def test_after_kill_9_of_a_parent_the_next_one_may_start_at_once(tmp_path):
    parent, servers = await start_parent(tmp_path, "stay")
    parent.kill()
    async with Servers(tmp_path, fast=True) as successors:
        assert successors.nats.running
        assert successors.etcd.running
    await parent.wait()
    await all_gone(servers)
