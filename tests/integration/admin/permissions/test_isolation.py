"""A producer of one project reaches no other project, on real servers that require permissions."""

import json

import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from evenlane.ring.coordination.ports import CoordinationError
from tests.support.permissions.guarded import ENV, ROOT
from tests.support.permissions.roles_at_work import connected, handler, node, set_topics, stored
from tests.support.until import until

pytestmark = pytest.mark.real


FORBIDDEN = [
    "lanes.{env}.0.other.0.mid", "later.{env}.0.other.0.mid.900000", "lanes.{env}.0.acme.0.mid.x",
    "lanes.elsewhere.0.acme.0.mid", "dead.{env}.acme", "dead.{env}.other", "settled.{env}.lanes.0", "busy.{env}.x",
    "meter.{env}.node", "backlog.{env}.node", "shares.{env}.all", "ask.{env}.drop.acme", "ask.{env}.drop.other",
    "ask.{env}.why.other", "ask.{env}.backlog.other", "_INBOX.producer-other.x", "_INBOX.node.x", "$JS.API.INFO",
    "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.LANES_{env}_0",
    "$JS.API.STREAM.MSG.GET.LANES_{env}_0", "$JS.API.DIRECT.GET.LANES_{env}_0",
    "$JS.API.DIRECT.GET.LANES_{env}_0.lanes.{env}.0.other.0.mid", "$JS.API.STREAM.MSG.DELETE.LANES_{env}_0",
    "$JS.API.STREAM.PURGE.LANES_{env}_0", "$JS.API.STREAM.DELETE.LANES_{env}_0", "$JS.API.STREAM.CREATE.MINE",
    "$JS.API.STREAM.UPDATE.LANES_{env}_0", "$JS.API.CONSUMER.CREATE.LANES_{env}_0",
    "$JS.API.CONSUMER.CREATE.LANES_{env}_0.mine.lanes.{env}.0.acme.>", "$JS.API.CONSUMER.MSG.NEXT.LANES_{env}_0.x",
]  # fmt: skip


UNHEARD = [
    ">", "_INBOX.>", "_INBOX.producer-other.>", "_INBOX.node.>", "lanes.{env}.>", "lanes.{env}.*.acme.>",
    "later.{env}.>", "dead.{env}.>", "backlog.{env}.>", "shares.{env}.>", "ask.{env}.>", "meter.{env}.>", "$JS.API.>",
    "$JS.EVENT.ADVISORY.>",
]  # fmt: skip


async def test_producer_of_one_project_reaches_no_other(any_kind):
    """S1: it can't put to, read, erase, schedule into, count or listen to another project, nor to anybody's replies."""
    servers = any_kind
    async with node(servers, handler([])), connected(servers, "producer-acme") as (client, denied):
        await set_topics(servers, acme={"qps": 1_000}, other={"qps": 1_000})
        for pattern in FORBIDDEN:
            subject = pattern.format(env=ENV)
            before, _ = len(denied), await client.publish(subject, b"x", headers={"Evenlane-Due": "1"})
            await client.flush()
            await until(lambda: len(denied) > before, what=subject)  # noqa: B023 - called at once
            assert f'for publish to "{subject.lower()}"' in denied[-1].lower()
        for pattern in UNHEARD:
            before, _ = len(denied), await client.subscribe(pattern.format(env=ENV))
            await client.flush()
            await until(lambda: len(denied) > before, what=pattern)  # noqa: B023 - called at once
        assert 0 == await stored(servers, f"lanes.{ENV}.0.other.0.mid")


async def test_acknowledgement_to_another_project(servers, apart):
    """S1: in one NATS account, a reply subject brings the server's acknowledgement into any stream; from an account of
    its own it reaches nothing.
    """
    target = f"lanes.{ENV}.1.other.0.mid"
    for each, expected in ((servers, 1), (apart, 0)):
        async with node(each, handler([])):
            await set_topics(each, acme={"qps": 1_000}, other={"qps": 1_000, "state": "paused"})
            before = await stored(each, target)
            async with connected(each, "producer-acme") as (client, _):
                await client.publish(f"lanes.{ENV}.0.acme.0.mid", b"x", reply=target)
                await client.request(f"lanes.{ENV}.0.acme.0.mid", b"x")  # the first one has been stored, too
            async with connected(each, ROOT) as (client, _):  # by now its acknowledgement has arrived as well
                await client.jetstream().publish(f"lanes.{ENV}.1.acme.0.mid", b"x")

            async def has_landed(each=each, before=before):
                return await stored(each, target) - before

            if expected:
                assert expected == await until(has_landed)
            else:
                assert 0 == await has_landed()


KEYS = ["topics/acme", "accepted/other", "accepted/acme2", "accepted/", "owners/0", "leader", "nodes/x", "plan/x"]


async def test_producer_of_one_project_reads_two_keys_of_etcd_and_writes_none(servers):
    """S1: it can't learn which other projects there are, change its own quota, or take a partition."""
    settings = servers.settings("producer-acme")
    etcd = connections.etcd(settings)
    try:
        for own in ("settings", "accepted/acme"):
            await etcd.get(names.key(ENV, own))
        for key in (*KEYS, "settings", "accepted/acme"):
            with pytest.raises(CoordinationError, match="permission denied"):
                await etcd.put(names.key(ENV, key), b"{}")
        for key in KEYS:
            with pytest.raises(CoordinationError, match="permission denied"):
                await etcd.get(names.key(ENV, key))
        for prefix in ("", "accepted/", "accepted/acme", "topics/"):
            with pytest.raises(CoordinationError, match="permission denied"):
                await etcd.list(names.key(ENV, prefix))
    finally:
        await etcd.close()


HEADERS = {
    "erase": {"Nats-Rollup": "all"},
    "erase a subject": {"Nats-Rollup": "sub"},
    "schedule": {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "lanes.guarded.0.other.0.mid"},
    "expire": {"Nats-TTL": "1s"},
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
async def test_headers_of_nats_reach_no_other_project(shared, headers):
    """S1: permissions don't see headers. The streams take none that erase, schedule or expire messages."""
    servers = shared
    async with node(servers, handler([])):
        await set_topics(servers, acme={"qps": 1_000}, other={"qps": 1_000, "state": "paused"})
        own, other = f"lanes.{ENV}.0.acme.0.mid", f"lanes.{ENV}.0.other.0.mid"
        async with connected(servers, ROOT) as (client, _):
            await client.jetstream().publish(other, b"x")
        before = await stored(servers, other)
        async with connected(servers, "producer-acme") as (client, _):
            answer = json.loads((await client.request(own, b"x", headers=headers)).data)
        assert "error" in answer
        assert before == await stored(servers, other)
