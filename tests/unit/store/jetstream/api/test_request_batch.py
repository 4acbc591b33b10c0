"""Requests sent together: each caller gets its own response, or the common error."""

import asyncio

import pytest

from evenlane.engine.core.ports import Lost
from evenlane.engine.store.jetstream.api.request_batch import RequestBatch


def lengths(requests, most=8):
    async def answer(keys):
        requests.append(list(keys))
        return {key: len(key) for key in keys if key != "nobody"}

    return RequestBatch(answer, most)


async def test_concurrent_requests_are_sent_as_one():
    requests = []
    batch = lengths(requests)
    assert [1, 2, None, 1] == await asyncio.gather(*(batch.ask(key) for key in ("a", "bb", "nobody", "a")))
    assert 3 == await batch.ask("ccc")
    assert [["a", "bb", "nobody"], ["ccc"]] == requests


async def test_batch_size_is_limited():
    requests = []
    batch = lengths(requests, most=2)
    await asyncio.gather(*(batch.ask(key) for key in "abc"))
    assert [["a", "b"], ["c"]] == requests


async def test_error_reaches_all_callers_but_cancellation_only_its_own():
    async def answer(_keys):
        raise Lost("cut off")

    batch = RequestBatch(answer, 8)
    cancelled, *others = [asyncio.create_task(batch.ask(key)) for key in ("a", "a", "b")]
    await asyncio.sleep(0)
    cancelled.cancel()
    for task in others:
        with pytest.raises(Lost, match="cut off"):
            await task
