"""examples/fastapi_app.py under a real uvicorn."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from evenlane.engine.runtime.embedded.ports import free_port
from tests.support.until import until

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def uvicorn(settings, output):
    """The example's web server: its process and its address."""
    port = free_port()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")} | {
        "EVENLANE_NATS": settings.nats[0], "EVENLANE_ETCD": settings.etcd[0], "EVENLANE_ENV": settings.env,
        "EVENLANE_STORAGE": "memory", "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    with output.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "uvicorn", "examples.fastapi_app:web", "--port", str(port), "--loop", "asyncio",
            cwd=ROOT, env=environ, stdout=out, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
    try:
        await until(lambda: "Application startup complete" in output.read_text(), what=output.read_text())
        yield process, f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_requests_put_and_the_shutdown_drains(settings, tmp_path):
    """A handler that runs when SIGTERM comes ends first; what its request was told is stored is not lost."""
    output = tmp_path / "output"
    async with uvicorn(settings, output) as (process, address), aiohttp.ClientSession() as session:
        async with session.post(f"{address}/orders/1", json={"number": 1}) as answer:
            assert (202, 1) == (answer.status, (await answer.json())["number"])
        await until(lambda: "billed orders-1 1" in output.read_text())
        async with session.post(f"{address}/orders/nowhere", json={"number": 2}) as answer:
            assert 404 == answer.status
            assert "has no topic in environment" in (await answer.json())["detail"]
        async with session.post(f"{address}/orders/1", json={"number": 3, "seconds": 1}) as answer:
            assert 202 == answer.status
        await until(lambda: "billing orders-1 3" in output.read_text())
        process.send_signal(signal.SIGTERM)
        # (uvicorn raises the signal once more after its shutdown)
        assert -signal.SIGTERM == await asyncio.wait_for(process.wait(), 60)
    assert "billed orders-1 3" in output.read_text()
