"""Questions that go out together: each asker gets its own answer, or the one error."""

import asyncio

import pytest

from evenlane.engine.core.ports import Lost
from evenlane.engine.store.jetstream.api.request_batch import RequestBatch


def lengths(asked, most=8):
    async def answer(keys):
        asked.append(list(keys))
        return {key: len(key) for key in keys if key != "nobody"}

    return RequestBatch(answer, most)


async def test_what_is_asked_at_once_is_one_question():
    asked = []
    together = lengths(asked)
    assert [1, 2, None, 1] == await asyncio.gather(*(together.ask(key) for key in ("a", "bb", "nobody", "a")))
    assert 3 == await together.ask("ccc")
    assert [["a", "bb", "nobody"], ["ccc"]] == asked


async def test_a_question_has_a_limit():
    asked = []
    together = lengths(asked, most=2)
    await asyncio.gather(*(together.ask(key) for key in "abc"))
    assert [["a", "b"], ["c"]] == asked


async def test_an_error_reaches_everybody_and_nobody_is_taken_along_by_another_ones_end():
    async def answer(_keys):
        raise Lost("cut off")

    together = RequestBatch(answer, 8)
    given_up, *others = [asyncio.create_task(together.ask(key)) for key in ("a", "a", "b")]
    await asyncio.sleep(0)
    given_up.cancel()
    for task in others:
        with pytest.raises(Lost, match="cut off"):
            await task
