"""Background work of a block: it ends with the block, and a failure of either is raised."""

import asyncio

import pytest

from evenlane.engine.proof.broker.background import run_in_background


async def failing():
    raise ValueError("no")


async def block(work, *, fails=False):
    """Run a block during which the work has its turn."""
    async with run_in_background(work):
        await asyncio.sleep(0)
        if fails:
            raise KeyError("mine")


async def test_work_runs_as_long_as_the_block():
    begun, ended = asyncio.Event(), []

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async with run_in_background(work(), work()):
        await begun.wait()
        assert [] == ended
    assert [1, 1] == ended


async def test_failure_of_the_work_is_raised_at_the_end_of_the_block():
    with pytest.raises(ValueError, match="no"):
        await block(failing())


async def test_failure_of_the_block_has_precedence():
    with pytest.raises(KeyError):
        await block(failing(), fails=True)
