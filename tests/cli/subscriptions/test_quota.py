"""`evenlane topics set --subscription`, and nodes that enforce it, on real servers (K10)."""

import asyncio
import json
import re

import pytest

from evenlane.engine.base.config.settings import load
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real

OWN = "topics", "set", "acme", "--subscription"


def test_quota_is_set_shown_and_taken_back(env, evenlane, transcript):
    """K10: `topics get` shows it, the history names it, and without it the topic is as it was."""
    evenlane("topics", "set", "acme", "--qps", "100")
    before = json.loads(evenlane("topics", "get", "acme", "--json")[1])
    evenlane("subscriptions", "create", "audit")
    transcript(*OWN, "audit", "--qps", "20", "--concurrency", "4")
    _, out, _ = transcript("topics", "get", "acme")
    for line in out.splitlines():
        if line.startswith("revision "):
            transcript.words[line] = re.sub(r"\d+", "REVISION", line)
    shown = json.loads(evenlane("topics", "get", "acme", "--json")[1])
    assert {"audit": {"qps": 20.0, "concurrency": 4}} == shown["wish"]["subscriptions"]
    assert shown["wish"]["subscriptions"] == shown["in_force"]["subscriptions"]
    transcript(*OWN, "audit", "--qps", "default")
    transcript(*OWN, "audit", "--concurrency", "default")
    after = json.loads(evenlane("topics", "get", "acme", "--json")[1])
    assert (before["wish"], {*before["in_force"]}) == (after["wish"], {*after["in_force"]})
    history = json.loads(evenlane("topics", "history", "acme", "--json")[1])["changes"]
    assert [None, {"audit": {"qps": 20.0, "concurrency": 4}}] == history[2]["changes"]["subscriptions"]
    transcript.check()


def test_quota_of_a_deleted_subscription_can_be_taken_back(env, evenlane):
    evenlane("topics", "set", "acme", "--qps", "100")
    evenlane("subscriptions", "create", "audit")
    evenlane(*OWN, "audit", "--qps", "20")
    evenlane("subscriptions", "delete", "audit", "--yes")
    code, out, error = evenlane(*OWN, "audit", "--qps", "default")
    assert (0, "acme: 100 QPS in 2 groups, active, accepted\n", "") == (code, out, error)
    assert 1 == evenlane(*OWN, "audit", "--qps", "default")[0]


WRONG = r"""
topics set acme --subscription audti --qps 20
topics set none --subscription audti --qps 20
topics set none --subscription audit --qps 20
topics set acme --subscription a_b --qps 20
topics set acme --subscription audit
topics set acme --subscription audit --qps 0
topics set acme --subscription audit --qps 301
topics set acme --subscription audit --burst some
topics set acme --subscription audit --qps 20 --ttl 1d
"""


def test_wrong_use_is_one_sentence(env, evenlane, transcript):
    """K10."""
    evenlane("topics", "set", "acme", "--qps", "100")
    evenlane("subscriptions", "create", "audit")
    transcript.fail(WRONG)
    transcript.check()


async def test_nodes_enforce_the_quota_of_their_subscription(env, evenlane_in_thread):
    """K10, E6: `audit` handles one message at a time; the unnamed one has the topic's concurrency. `why` and `top` show
    each its own.
    """

    async def document(*arguments):
        code, out, error = await evenlane_in_thread(*arguments, "--json")
        assert code == 0, error
        return json.loads(out)

    free = asyncio.Event()

    async def hold(_message):
        await free.wait()

    async with running_engine(load({"node": "worker-1"}).settings, hold):
        await evenlane_in_thread("topics", "set", "acme", "--qps", "100", "--ack-wait", "10m", "--concurrency", "2")
        assert 0 == (await evenlane_in_thread("subscriptions", "create", "audit"))[0]
        assert 0 == (await evenlane_in_thread(*OWN, "audit", "--qps", "20", "--concurrency", "1"))[0]
        async with running_engine(load({"subscription": "audit", "node": "audit-1"}).settings, hold):
            for number in range(3):
                await evenlane_in_thread("put", "acme", "x", "--id", f"order-{number}")
            for option, held, qps in (((), 2, 100), (("--subscription", "audit"), 1, 20)):

                async def holds(option=option, held=held):
                    why = await document("why", "acme", *option)
                    return (why["backlog"], why["in_flight"]) == (3 - held, held)

                await until(holds, 60, f"{held} messages in flight")

                async def shows(option=option, qps=qps):
                    return [qps] == [each["qps"] for each in (await document("top", *option))["tenants"]]

                await until(shows, 60, f"{qps} QPS in top")
            free.set()
