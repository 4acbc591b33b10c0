"""Coroutines that run as long as a block does."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


@asynccontextmanager
async def run_in_background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these coroutines concurrently, and cancel them when the block ends. Then raises an error that one of them
    raised.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
