"""Work beside a block: it ends with the block, and a failure of either is told."""

import asyncio

import pytest

from evenlane.engine.proof.broker.background import in_background


async def failing():
    raise ValueError("no")


async def block(alongside, *, fails=False):
    """A block that goes on while the work beside it has its turn."""
    async with in_background(alongside):
        await asyncio.sleep(0)
        if fails:
            raise KeyError("mine")


async def test_it_runs_as_long_as_the_block():
    begun, ended = asyncio.Event(), []

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async with in_background(work(), work()):
        await begun.wait()
        assert [] == ended
    assert [1, 1] == ended


async def test_what_it_raised_is_raised_at_the_end_of_the_block():
    with pytest.raises(ValueError, match="no"):
        await block(failing())


async def test_the_failure_of_the_block_comes_first():
    with pytest.raises(KeyError):
        await block(failing(), fails=True)
