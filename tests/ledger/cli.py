"""The command line, as people use it: processes of their own, what they print read as JSON."""

import asyncio
import os
import sys
from typing import Any

import msgspec

from tests.ledger.world import ProcessWorld
from tests.support import ROOT

_CODE = "from evenlane.engine.cli.main import main; main()"


async def evenlane(world: ProcessWorld, *arguments: str) -> dict[str, Any]:
    """Run `evenlane ... --json` in a world's environment; fails unless its exit code is 0."""
    return await patiently(world, *arguments, timeout=0)


async def patiently(world: ProcessWorld, *arguments: str, timeout: float = 60.0) -> dict[str, Any]:
    """The same, again and again while it says that it couldn't be done (1) and not that it is wrong (2)."""
    clock = asyncio.get_running_loop().time
    end = clock() + timeout
    while True:
        status, out, error = await _run(world, arguments)
        if status == 0:
            reported: dict[str, Any] = msgspec.json.decode(out)
            return reported
        assert status == 1, f"{' '.join(arguments)}: {status}: {error}"
        assert clock() < end, f"{' '.join(arguments)}, after {timeout:g} s: {error}"


async def _run(world: ProcessWorld, arguments: tuple[str, ...]) -> tuple[int | None, bytes, str]:
    given = {"nats": world.servers.nats.url, "etcd": world.servers.etcd.endpoint, "env": world.settings.env}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")}
    environ |= {f"EVENLANE_{key.upper()}": value for key, value in given.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CODE, *arguments, "--json", env=environ | {"PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, error = await process.communicate()
    return process.returncode, out, error.decode()
