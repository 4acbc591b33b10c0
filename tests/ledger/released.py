"""Processes of other releases.

The release before is taken from this repository's history, with its own handlers of these tests. The release after is a
copy of this one, with a newer form of the settle log.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from evenlane.engine.runtime.embedded.child import guard
from tests.ledger.process import NodeProcess
from tests.support import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.ledger.cluster import ProcessCluster

BEFORE = "b909c0c887c06f75b0810dbd205e3b129d27912f"
"""The commit that stands for the release before, as long as there is no tag: the last one before records had a format.
After a release, this is its tag; what is to be compatible with it, docs/reference/compatibility.md says.
"""
_EVENLANE = "from evenlane.engine.cli.main import main; main()"
_PUTS = """
import asyncio, json, sys
from evenlane import Producer
from evenlane.engine.base.config.settings import load
from evenlane.engine.producer.put import Put

async def main():
    projects, turn = json.loads(sys.argv[1]), 0
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    async with Producer(settings=load({}).settings) as producer:
        while not ended.done():
            puts = [Put(each, b"", id=f"{each}-before{turn}") for each in projects]
            for put, outcome in zip(puts, await producer.put_many(puts), strict=True):
                if isinstance(outcome, Exception):
                    raise outcome
                print(put.id, outcome.stream, outcome.sequence)
            turn += 1
            await asyncio.sleep(0.1)

asyncio.run(main())
"""
_LOGS = """
import asyncio, json, sys
from evenlane.engine.base.config.settings import load
from tests.ledger import settle_logs

logs = asyncio.run(settle_logs.read(load({}).settings, int(sys.argv[1])))
print(json.dumps({name: [sorted(log.settled()), log.log.epoch, log.log.unreadable] for name, log in logs.items()}))
"""


class Release:
    """Another release, whose code is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def node(self, cluster: ProcessCluster, name: str) -> NodeProcess:
        """Start a node, and wait until it serves or is on standby."""
        node = _Node(self.folder, cluster, name)
        cluster.nodes.append(node)
        await node.start()
        return node

    async def evenlane(self, cluster: ProcessCluster, *arguments: str) -> dict[str, Any]:
        """The JSON that a command prints. Fails unless its exit code is 0."""
        out = await self._run(cluster, _EVENLANE, *arguments, "--json")
        found: dict[str, Any] = json.loads(out)
        return found

    async def settle_logs(self, cluster: ProcessCluster) -> dict[str, Any]:
        """What this release reads in the settle logs, by stream: settled sequences, epoch, unreadable records."""
        found: dict[str, Any] = json.loads(await self._run(cluster, _LOGS, str(cluster.partitions)))
        return found

    @asynccontextmanager
    async def puts(self, cluster: ProcessCluster) -> AsyncIterator[None]:
        """A producer that puts to each project while the block runs. Its acknowledged messages are the cluster's."""
        process = await self._start(cluster, _PUTS, json.dumps(cluster.projects), stdin=PIPE)
        try:
            yield
        finally:
            out, error = await process.communicate(b"")
        assert (0, True) == (process.returncode, bool(out)), error.decode()
        for line in out.decode().splitlines():
            own, stream, sequence = line.split()
            cluster.acknowledged[own] = (stream, int(sequence))

    async def _run(self, cluster: ProcessCluster, code: str, *arguments: str) -> bytes:
        process = await self._start(cluster, code, *arguments)
        out, error = await process.communicate()
        assert 0 == process.returncode, error.decode()
        return out

    async def _start(
        self, cluster: ProcessCluster, code: str, *arguments: str, stdin: int = DEVNULL
    ) -> asyncio.subprocess.Process:
        environ = environment(cluster, self.folder)
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, *arguments, cwd=self.folder, env=environ, stdin=stdin, stdout=PIPE, stderr=PIPE
        )


class _Node(NodeProcess):
    """A node of another release, with its own handlers of tests, and the same ledger."""

    def __init__(self, folder: Path, cluster: ProcessCluster, name: str) -> None:
        super().__init__(cluster.servers, cluster.folder, "obey", name=name, **cluster.node_settings)
        self._folder = folder

    async def spawn(self) -> None:
        command = [sys.executable, "-c", _EVENLANE, "run", "--handler", "tests.ledger.handlers:obey"]
        environ = self._environment() | {"PYTHONPATH": str(self._folder)}
        with self.log.open("ab") as log:
            started = await asyncio.create_subprocess_exec(
                *guard(), *command, cwd=self._folder, env=environ, stdin=DEVNULL, stdout=PIPE, stderr=log
            )
        self._process = _Started(started)


class _Started:
    """A process, with the interface of `Forked`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._process, self.pid, self.stdout = process, process.pid, process.stdout

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    def send_signal(self, number: int) -> None:
        if self.running:
            self._process.send_signal(number)

    async def wait(self) -> int:
        return await self._process.wait()


class NoHistory(Exception):
    """The repository's history isn't here, as in an archive of the sources."""


def release_before(folder: Path, repository: Path = ROOT) -> Release:
    """The release before, unpacked into this new folder. Raises NoHistory."""
    found = ["git", f"--git-dir={repository / '.git'}", "cat-file", "-e", f"{BEFORE}^{{commit}}"]
    if subprocess.run(found, check=False, capture_output=True).returncode != 0:
        raise NoHistory(
            f"commit {BEFORE[:12]}, the release before, isn't in a git history of {repository}: clone the repository"
            " with all of its history to test the releases side by side"
        )
    folder.mkdir()
    archive = subprocess.run(["git", "archive", BEFORE], cwd=repository, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", folder], input=archive, check=True)
    return Release(folder)


def release_after(folder: Path) -> Release:
    """A copy of this release in this new folder, but with settle logs of the next version: it reads both, and writes
    the new one.
    """
    folder.mkdir()
    for name in ("engine", "evenlane", "priority", "quota", "ring", "spark", "dashboards", "tests"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    module = folder / "engine" / "core" / "records" / "settle_record.py"
    text = module.read_text(encoding="utf-8")
    for present, next_ in (("\nVERSION = 1\n", "\nVERSION = 3\n"), ("SHARED_VERSION = 2\n", "SHARED_VERSION = 3\n")):
        assert 1 == text.count(present), f"{module.name} has changed: adapt this function"
        text = text.replace(present, next_)
    module.write_text(text, encoding="utf-8")
    return Release(folder)


def environment(cluster: ProcessCluster, folder: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")}
    return own | {
        "PYTHONPATH": str(folder), "NO_COLOR": "1",
        "EVENLANE_NATS": cluster.servers.nats.url, "EVENLANE_ETCD": cluster.servers.etcd.endpoint,
    }  # fmt: skip
