"""Commands in processes of their own, whose output is read as JSON."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from tests.ledger.forked import Forked
from tests.ledger.world import ProcessWorld


async def evenlane(world: ProcessWorld, *arguments: str) -> dict[str, Any]:
    """Run `evenlane ... --json` in a world's environment. Fails unless its exit code is 0."""
    return await patiently(world, *arguments, timeout=0)


async def patiently(world: ProcessWorld, *arguments: str, timeout: float = 60.0) -> dict[str, Any]:
    """Run the command until it succeeds: again while its exit code says failed (1), not wrong use (2)."""
    clock = asyncio.get_running_loop().time
    end = clock() + timeout
    while True:
        status, out, error = await _run(world, arguments)
        if status == 0:
            reported: dict[str, Any] = msgspec.json.decode(out)
            return reported
        assert status == 1, f"{' '.join(arguments)}: {status}: {error}"
        assert clock() < end, f"{' '.join(arguments)}, after {timeout:g} s: {error}"


async def refusal(world: ProcessWorld, *arguments: str) -> str:
    """Run a command that must fail, and return what it says."""
    status, _, error = await _run(world, arguments)
    assert status == 1, f"{' '.join(arguments)}: {status}: {error}"
    return error


async def _run(world: ProcessWorld, arguments: tuple[str, ...]) -> tuple[int, bytes, str]:
    settings = world.settings
    given = {"nats": ",".join(settings.nats), "etcd": ",".join(settings.etcd), "env": settings.env}
    given["replicas"] = str(settings.replicas)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")}
    environ |= {f"EVENLANE_{key.upper()}": value for key, value in given.items()}
    with TemporaryDirectory() as folder:
        stderr = Path(folder) / "stderr"
        process = await Forked.started([*arguments, "--json"], environ, stderr)
        out = await process.stdout.read()
        return await process.wait(), out, stderr.read_text()
