"""A cancellation reaches its task, even if the awaited result arrives in the same instant (E7)."""

import asyncio

import pytest

from evenlane.engine.base.aio.cancellation import cancel_and_wait, cancellable
from tests.support.cancelling import cancelled_anywhere

ALWAYS = ["while it waits", "as it comes"]


class Deaf:
    """Swallows a cancellation, as `asyncio.wait_for` of Python 3.11 does if it coincides with the answer."""

    def __init__(self, end: Exception | None = None) -> None:
        self._end = end

    async def ask(self) -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self._end is not None:
                raise self._end from None
        return "answer"


async def cancelled(work) -> asyncio.Task:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task


class TestCancellable:
    async def test_result_and_error_are_passed_on(self):
        async def fail():
            raise ValueError("no")

        assert 7 == await cancellable(asyncio.sleep(0, 7))
        with pytest.raises(ValueError, match="no"):
            await cancellable(fail())

    @pytest.mark.parametrize("end", [None, OSError("gone")], ids=["an answer", "an error"])
    async def test_swallowed_cancellation_ends_the_task(self, end):
        assert (await cancelled(cancellable(Deaf(end).ask()))).cancelled()

    @pytest.mark.parametrize("when", ALWAYS)
    async def test_cancellation_at_the_instant_of_the_result_is_not_lost(self, when):
        """Python 3.11 loses it."""

        async def work():
            assert 1 == await cancellable(asyncio.wait_for(asyncio.sleep(0.001, 1), 10))

        assert 1 == await cancelled_anywhere(work, when)

    async def test_inner_timeout_is_no_cancellation(self):
        async def work():
            try:
                async with asyncio.timeout(0):
                    await asyncio.sleep(10)
            except TimeoutError:
                return "late"

        assert "late" == await cancellable(work())

    async def test_task_that_was_cancelled_before_can_wait(self):
        """A task that cleans up after its cancellation must be able to wait."""

        async def clean_up():
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                return await cancellable(asyncio.sleep(0, "cleaned up"))

        assert "cleaned up" == (await cancelled(clean_up())).result()


class TestCancelAndWait:
    @pytest.mark.parametrize("when", ALWAYS)
    async def test_cancellation_of_the_waiting_task_is_passed_on(self, when):
        async def work():
            await cancel_and_wait(asyncio.create_task(asyncio.sleep(10)))

        assert 1 == await cancelled_anywhere(work, when)

    async def test_wait_ends_once_the_task_has_cleaned_up(self):
        steps = []

        async def work():
            try:
                await asyncio.sleep(10)
            finally:
                await asyncio.sleep(0)
                steps.append("cleaned up")

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await cancel_and_wait(task)
        await cancel_and_wait(task)
        assert ["cleaned up"] == steps

    async def test_error_of_the_task_is_raised(self):
        task = asyncio.create_task(Deaf(OSError("gone")).ask())
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="gone"):
            await cancel_and_wait(task)
