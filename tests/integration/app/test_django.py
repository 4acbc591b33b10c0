"""examples/django_app.py as a server."""

import asyncio
import os
import sys
from pathlib import Path

import aiohttp
import pytest

from evenlane import Engine
from evenlane.engine.runtime.embedded.ports import free_port
from tests.support.until import until

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]


async def test_views_put_from_their_threads(settings):
    """P8: many requests at once share one producer."""
    handled, port, ready = [], free_port(), asyncio.Event()

    async def handle(message):
        handled.append(message.body)

    environ = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")} | {
        "EVENLANE_NATS": settings.nats[0], "EVENLANE_ETCD": settings.etcd[0], "EVENLANE_ENV": settings.env,
        "EVENLANE_STORAGE": "memory", "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "examples/django_app.py", "runserver", "--noreload", str(port), cwd=ROOT, env=environ,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with Engine(handle, settings=settings, on_ready=lambda *_: ready.set()) as engine:
            running = asyncio.create_task(engine.run())
            await asyncio.wait_for(ready.wait(), 60)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

                async def post(number, region="1"):
                    async with session.post(f"/orders/{region}", json={"number": number}) as answer:
                        return answer.status, await answer.json()

                async def answers():
                    try:
                        return await post(0)
                    except aiohttp.ClientConnectionError:
                        return None

                await until(answers)
                found = await asyncio.gather(*(post(number) for number in range(1, 20)))
                assert {202} == {status for status, _ in found}
                status, document = await post(99, "nowhere")
                assert 404 == status
                assert "has no topic in environment" in document["error"]
            await until(lambda: len(set(handled)) == 20)
            engine.stop()
            await running
    finally:
        process.kill()
        await process.wait()
