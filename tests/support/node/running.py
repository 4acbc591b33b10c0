"""A node of this process that serves while a block runs."""

import asyncio
from contextlib import asynccontextmanager

from evenlane import Engine


@asynccontextmanager
async def running_engine(settings, handle=lambda _message: None, **options):
    """The engine, once it is ready. It is stopped in order after the block, unless the test has asked it to stop.
    `options` are those of `Engine`.
    """
    ready = asyncio.Event()
    async with Engine(handle, settings=settings, on_ready=lambda *_: ready.set(), **options) as engine:
        running = asyncio.create_task(engine.run())
        try:
            await asyncio.wait_for(ready.wait(), 60)
            yield engine
        finally:
            engine.stop()
            assert await running, "all started messages are settled"
