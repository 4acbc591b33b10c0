"""Runs the leader's controllers concurrently; they end together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.ring.coordination.ports import CreatedAt

    Controller: TypeAlias = Callable[[CreatedAt], Awaitable[None]]


def run_together(*controllers: Controller) -> Controller:
    """Combine controllers into one that ends, or raises, as soon as any of them does."""

    async def serve(fence: CreatedAt) -> None:
        tasks = [asyncio.ensure_future(controller(fence)) for controller in controllers]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return serve
