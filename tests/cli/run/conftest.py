"""`evenlane run` and `evenlane up` as processes."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from evenlane.engine.runtime.embedded.child import guard
from tests.support.cli.fakes import PROGRAM, ROOT


class Command:
    """`evenlane ...` as a process in its own session, as a shell starts it, and its output."""

    def __init__(self, folder: Path, code: str = "pass") -> None:
        self._code = f"{code}; from evenlane.engine.cli.main import main; main()"
        self.log = folder / "stderr"
        self.folder = folder
        self.process: asyncio.subprocess.Process

    async def start(self, *arguments: str, **environ: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")}
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *guard(), sys.executable, "-P", "-c", self._code, *arguments, cwd=self.folder, start_new_session=True,
                stdout=asyncio.subprocess.PIPE, stderr=log, env=inherited | {"PYTHONPATH": str(ROOT)} | environ,
            )  # fmt: skip

    async def line(self) -> str:
        line = await asyncio.wait_for(self.process.stdout.readline(), 120)
        assert line, self.stderr_text()
        return line.decode().strip()

    async def ended(self) -> int:
        rest, _ = await asyncio.wait_for(self.process.communicate(), 120)
        assert b"" == rest
        return self.process.returncode

    def stderr_text(self) -> str:
        return self.log.read_text(errors="replace")

    def nodes(self) -> dict[str, psutil.Process]:
        return {
            part.removeprefix("--node="): child
            for child in psutil.Process(self.process.pid).children()
            for part in child.cmdline()
            if part.startswith("--node=")
        }


@pytest.fixture
async def command(fakes, tmp_path):
    """`evenlane run` with fake nodes and without servers."""
    one = Command(tmp_path, f"import evenlane.engine.cli.run.supervisor as p; p._PROGRAM = {PROGRAM!r}")

    async def started(*scripts: str, flags: Sequence[str] = ()) -> Command:
        fakes.write(*scripts)
        nodes = ["--node", "n", "--processes", str(len(scripts))]
        await one.start("run", "--handler", "a:b", *nodes, "--etcd", "127.0.0.1:1", *flags, **fakes.environ)
        return one

    yield started
    if one.process.returncode is None:
        one.process.kill()


@pytest.fixture
async def real(world, tmp_path):
    """`evenlane run --processes` with real nodes on real servers."""
    one = Command(tmp_path)
    (tmp_path / "shop.py").write_text("async def handle(message): pass\n")

    async def started(processes: int, handler: str = "shop:handle", **settings: object) -> Command:
        given = {
            "nats": world.servers.nats.url, "etcd": world.servers.etcd.endpoint, "env": world.settings.env, "node": "n",
            "lease_ttl": 30,  # no lease ends by itself, however busy the machine is
        } | settings  # fmt: skip
        environ = {f"EVENLANE_{key.upper()}": str(value) for key, value in given.items()}
        await one.start("run", "--handler", handler, "--processes", str(processes), **environ)
        return one

    yield started
    if one.process.returncode is None:
        one.process.kill()


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; a zombie, which waits for its new parent, doesn't."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
