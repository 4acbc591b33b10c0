"""The HTTP API and `DeadLetters` with a subscription, on real servers (K10)."""

import aiohttp
import pytest

from evenlane import DeadLetters, EvenlaneError
from evenlane.engine.base.config.settings import load
from tests.support.http.serving import TOKEN
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real


async def test_any_node_answers_for_any_subscription(env, evenlane_in_thread, tmp_path):
    """K3, K10: reasons, backlog and dead letters are those of the subscription that the request names; by default those
    of the node's own.
    """
    (tmp_path / "token").write_text(TOKEN)
    http = {"http_port": 0, "http_token_file": str(tmp_path / "token")}
    audited = []

    async def note(_message):
        pass

    async def audit(message):
        audited.append(message.attempt)
        raise ValueError("the archive is full")

    await evenlane_in_thread("topics", "set", "acme", "--qps", "100", "--max-attempts", "1")
    assert 0 == (await evenlane_in_thread("subscriptions", "create", "audit"))[0]
    worker = running_engine(load({"node": "worker-1", **http}).settings, note)
    auditor = running_engine(load({"node": "audit-1", "subscription": "audit", **http}).settings, audit)
    async with worker as one, auditor as other, aiohttp.ClientSession() as client:

        async def get(engine, path):
            async with client.get(f"{engine.http.address}{path}") as response:
                return response.status, await response.json()

        async def post(engine, path):
            headers = {"authorization": f"Bearer {TOKEN}"}
            async with client.post(f"{engine.http.address}{path}", json={"all": True}, headers=headers) as response:
                return response.status, await response.json()

        async def dead(engine, query=""):
            status, document = await get(engine, f"/api/dead/acme{query}")
            assert 200 == status, document
            return document["total"]

        await evenlane_in_thread("put", "acme", "an order", "--id", "order-1")

        async def is_dead():
            return await dead(other) == 1

        await until(is_dead, 60, "the dead letter")
        assert [0, 1, 1, 0] == [
            await dead(one), await dead(one, "?subscription=audit"), await dead(other, "?subscription=audit"),
            await dead(other, "?subscription="),
        ]  # fmt: skip
        for engine, query, node in ((one, "?subscription=audit", "audit-1"), (other, "?subscription=", "worker-1")):
            for path in ("/api/why/acme", "/api/overview"):
                status, document = await get(engine, f"{path}{query}")
                assert 200 == status, document
                assert [node] == [each["id"] for each in document["nodes"]]
        assert (200, 1) == _with(await post(one, "/api/dead/acme/replay?subscription=audit"), "replayed")
        await until(lambda: len(audited) == 2, 60, "another attempt")
        await until(is_dead, 60, "the next dead letter")
        async with DeadLetters(subscription="audit") as letters:
            assert 1 == await letters.count("acme")
        assert (200, 1) == _with(await post(one, "/api/dead/acme/drop?subscription=audit"), "dropped")
        assert 0 == await dead(other)
        for path in ("/api/why/acme", "/api/overview", "/api/dead/acme"):
            status, document = await get(one, f"{path}?subscription=audt")
            wrong = f"environment {env!r} has no subscription 'audt': there are audit, and the one without a name"
            assert (404, wrong) == (status, document["error"])
    with pytest.raises(EvenlaneError, match="has no subscription 'audt': there are audit, and the one without a name"):
        async with DeadLetters(subscription="audt"):
            pass


def _with(answer, field):
    status, document = answer
    return status, document[field]
