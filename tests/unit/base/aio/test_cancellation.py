"""A cancellation reaches its task, also in the instant in which what it waits for comes (E7)."""

import asyncio

import pytest

from evenlane.engine.base.aio.cancellation import cancel_and_wait, cancellable
from tests.support.cancelling import cancelled_anywhere

ALWAYS = ["while it waits", "as it comes"]


class Deaf:
    """Passes over a cancellation, as `asyncio.wait_for` of Python 3.11 does when it meets the answer."""

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
    async def test_an_answer_and_an_error_are_given_as_they_are(self):
        async def fail():
            raise ValueError("no")

        assert 7 == await cancellable(asyncio.sleep(0, 7))
        with pytest.raises(ValueError, match="no"):
            await cancellable(fail())

    @pytest.mark.parametrize("end", [None, OSError("gone")], ids=["an answer", "an error"])
    async def test_who_is_cancelled_hears_of_it_whatever_comes(self, end):
        assert (await cancelled(cancellable(Deaf(end).ask()))).cancelled()

    @pytest.mark.parametrize("when", ALWAYS)
    async def test_a_bounded_wait_that_has_its_answer_in_the_same_instant(self, when):
        """The case in which Python 3.11 forgets it."""

        async def work():
            assert 1 == await cancellable(asyncio.wait_for(asyncio.sleep(0.001, 1), 10))

        assert 1 == await cancelled_anywhere(work, when)

    async def test_a_time_that_runs_out_inside_is_no_cancellation(self):
        async def work():
            try:
                async with asyncio.timeout(0):
                    await asyncio.sleep(10)
            except TimeoutError:
                return "late"

        assert "late" == await cancellable(work())

    async def test_in_a_task_that_was_cancelled_before_it_waits_as_ever(self):
        """As what ends in order has to."""

        async def clear_up():
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                return await cancellable(asyncio.sleep(0, "cleared"))

        assert "cleared" == (await cancelled(clear_up())).result()


class TestCancelAndWait:
    @pytest.mark.parametrize("when", ALWAYS)
    async def test_a_cancellation_of_who_waits_is_told_from_that_of_the_task(self, when):
        async def work():
            await cancel_and_wait(asyncio.create_task(asyncio.sleep(10)))

        assert 1 == await cancelled_anywhere(work, when)

    async def test_it_returns_once_the_task_has_cleared_up(self):
        steps = []

        async def work():
            try:
                await asyncio.sleep(10)
            finally:
                await asyncio.sleep(0)
                steps.append("cleared up")

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await cancel_and_wait(task)
        await cancel_and_wait(task)
        assert ["cleared up"] == steps

    async def test_the_error_of_the_task_is_raised(self):
        task = asyncio.create_task(Deaf(OSError("gone")).ask())
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="gone"):
            await cancel_and_wait(task)
