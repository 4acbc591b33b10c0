"""No server outlives its parent process, however it ends."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.etcd import EtcdServer
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
    """Whether it has ended; a zombie has, and waits for its new parent."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def all_gone(servers: list[psutil.Process]) -> None:
    await until(lambda: all(map(is_gone, servers)), what=f"the end of {servers}")


async def test_servers_end_with_parent_ended_by_signal(tmp_path):
    parent, servers = await start_parent(tmp_path, "stay")
    assert [False, False] == [is_gone(server) for server in servers]
    parent.terminate()
    assert -signal.SIGTERM == await parent.wait()
    await all_gone(servers)


async def test_servers_end_with_parent_that_exits(tmp_path):
    parent, servers = await start_parent(tmp_path, "leave")
    assert 0 == await parent.wait()
    await all_gone(servers)


async def test_ctrl_c_reaches_only_parent_which_stops_servers_in_order(tmp_path):
    parent, servers = await start_parent(tmp_path, "stay")
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
    assert -signal.SIGINT == await parent.wait()
    assert [True, True] == [is_gone(server) for server in servers]
    log = (tmp_path / "nats.log").read_text()
    assert ('Trapped "terminated" signal' in log, "Server Exiting" in log) == (True, True)


async def test_server_does_not_start_without_parent(tmp_path):
    """The parent-death signal reaches only processes that requested it before."""
    *guard, _parent, number = child.guard()
    command = [*guard, str(os.getppid()), number, "/usr/bin/touch", tmp_path / "begun"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, output = await process.communicate()
    assert (1, f"the parent process {os.getppid()} is gone\n") == (process.returncode, output.decode())
    assert not (tmp_path / "begun").exists()


async def test_etcd_may_end_in_order_after_kill_9_of_parent(tmp_path):
    """P12: an etcd 3.5.1 that is killed may lose its last changes, so the kernel sends it SIGTERM."""
    script = f"trap 'echo in order > {tmp_path}/end; exit' TERM; echo ready; while :; do sleep 0.05; done"
    *guard, _parent, number = child.guard(EtcdServer.orphan_signal)
    guarded = [*guard, "$$", number, "/bin/sh", "-c"]
    parent = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f'{" ".join(guarded)} "$0" & wait', script, stdout=asyncio.subprocess.PIPE
    )
    assert b"ready\n" == await parent.stdout.readline()
    parent.kill()
    await parent.wait()
    await until((tmp_path / "end").exists, what="the orderly end")


async def test_new_servers_start_at_once_after_kill_9_of_parent(tmp_path):
    parent, servers = await start_parent(tmp_path, "stay")
    parent.kill()
    async with Servers(tmp_path, fast=True) as successors:
        assert successors.nats.is_running
        assert successors.etcd.is_running
    await parent.wait()
    await all_gone(servers)
