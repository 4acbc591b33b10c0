"""Runs the leader's duties next to the topic controller; they end together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.ring.coordination.ports import CreatedAt

    Duty: TypeAlias = Callable[[CreatedAt], Awaitable[None]]


def run_together(*duties: Duty) -> Duty:
    """Combine duties into one that ends, or raises, as soon as any of them does."""

    async def serve(fence: CreatedAt) -> None:
        tasks = [asyncio.ensure_future(duty(fence)) for duty in duties]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return serve
