"""P11: streams that were just created, on a connection whose answers the test sets."""

import asyncio

import pytest

from evenlane.engine.store.jetstream.api.values import StreamPage
from evenlane.engine.store.jetstream.client.replies import ApiError, Denied
from evenlane.engine.store.jetstream.stream_configs import busy_config
from evenlane.engine.store.jetstream.streams import ensure
from tests.support.virtual_time import in_virtual_time

CONFIG = busy_config("online", "file", 3)
MISSING = ApiError("STREAM.INFO", 404, 10059, "stream not found")
LEADERLESS = ApiError("STREAM.INFO", 503, 10008, "JetStream system temporarily unavailable")


class Cluster:
    """Creates any stream; requests for its info get `answers` in turn, and the last one again and again."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = 0

    async def api(self, verb, _request=None, timeout=5.0):
        assert verb == f"STREAM.CREATE.{CONFIG['name']}"
        assert timeout

    async def api_as(self, kind, verb, _request=None, timeout=5.0):
        if kind is StreamPage:
            return StreamPage(total=0)
        assert verb == f"STREAM.INFO.{CONFIG['name']}"
        self.asked += 1
        answer = self._answers[min(self.asked, len(self._answers)) - 1]
        if answer is TimeoutError:
            await asyncio.sleep(timeout)
        if answer is not None:
            raise answer
        return None


@in_virtual_time
async def test_it_waits_until_the_servers_agree():
    cluster = Cluster(MISSING, TimeoutError, LEADERLESS, None)
    assert {CONFIG["name"]: 3} == (await ensure(cluster, [CONFIG])).replicas
    assert 4 == cluster.asked


@in_virtual_time
async def test_servers_that_never_agree_are_one_sentence():
    with pytest.raises(TimeoutError) as caught:
        await ensure(Cluster(MISSING), [CONFIG])
    assert "the NATS servers don't agree on the new stream BUSY_online within 30 s" == str(caught.value)


@in_virtual_time
async def test_other_refusals_are_raised_at_once():
    cluster = Cluster(Denied("$JS.API.STREAM.INFO.BUSY_online"))
    with pytest.raises(Denied):
        await ensure(cluster, [CONFIG])
    assert 1 == cluster.asked
