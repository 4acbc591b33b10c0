"""`evenlane subscriptions` on real servers, without nodes and with one (K10)."""

import asyncio
import json
import os
import pty
import sys
from dataclasses import replace
from functools import partial

import aiohttp
import nats
import pytest

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import load
from evenlane.engine.cluster.subscriptions.registry import RegistryRecord, Subscription, read_view, registry_key
from evenlane.engine.core.records import settle_record
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.membership.records import SETTLE_LOG, NodeRecord, encode
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real

NAME = "audit"


@pytest.fixture
def subscriptions(env, evenlane):
    """Runs `evenlane subscriptions ...`: (exit code, stdout, stderr)."""
    return partial(evenlane, "subscriptions")


@pytest.fixture
def shown(env, transcript):
    """Runs `evenlane subscriptions ...`, and records its output."""
    return partial(transcript, "subscriptions")


@pytest.fixture
def at_terminal(monkeypatch):
    """Gives a command a terminal on which somebody types `answer`."""

    terminal = pty.openpty()

    def give(answer):
        os.write(terminal[0], f"{answer}\n".encode())
        monkeypatch.setattr(sys, "stdin", os.fdopen(os.dup(terminal[1])))

    yield give
    for each in terminal:
        os.close(each)


@pytest.fixture
def by_hand(servers):
    """Runs work with a client of etcd."""

    async def run(work):
        client = EtcdCoordination([servers.etcd.endpoint])
        try:
            return await work(client)
        finally:
            await client.close()

    return lambda work: asyncio.run(run(work))


def list_streams(servers):
    async def ask():
        client = await nats.connect(servers.nats.url)
        try:
            found = {}
            while page := await client.jetstream().streams_info(offset=len(found)):  # of the tests before, too
                found |= {each.config.name: each.state.messages for each in page}
            return found
        finally:
            await client.close()

    return asyncio.run(ask())


def test_subscription_is_created_shown_and_deleted(shown, transcript):
    """K10: the commands' output."""
    shown("list")
    shown("create", NAME)
    shown("create", "billing", "--projects", "acme", "--projects", "shop-*")
    shown("list")
    shown("get", "billing")
    shown("delete", NAME, "--yes")
    shown("list")
    transcript.check()


def test_documents_agree(subscriptions, env):
    """K10: the same fields in each command."""
    code, out, err = subscriptions("create", NAME, "--projects", "acme", "--json")
    assert (0, "") == (code, err)
    document = json.loads(out)
    streams = [f"{kind}_{env}_audit" for kind in ("SETTLED", "AGAIN", "DEAD", "METER")]
    assert (NAME, "active", ["acme"], [], streams) == tuple(
        document[field] for field in ("name", "state", "projects", "nodes", "streams")
    )
    assert document == json.loads(subscriptions("get", NAME, "--json")[1])
    unnamed = {
        "name": None, "state": "active", "since": None, "projects": [], "nodes": [], "streams": [], "waiting": 0,
        "delayed": 0,
    }  # fmt: skip
    assert {"subscriptions": [unnamed, document]} == json.loads(subscriptions("list", "--json")[1])
    code, out, err = subscriptions("delete", NAME, "--yes", "--json")
    assert (0, {"name": NAME, "deleted": True}, "") == (code, json.loads(out), err)
    assert {"subscriptions": [unnamed]} == json.loads(subscriptions("list", "--json")[1])


def test_streams_and_keys_come_and_go(subscriptions, servers, env, by_hand):
    """K10: each settle log has a first record; a deletion leaves the lanes as they are."""
    assert 0 == subscriptions("create", NAME)[0]
    found = list_streams(servers)
    cluster = names.cluster_name(env, NAME)
    # 4 partitions; the subscription has a part of the stream of retries as well
    assert (12, 8) == (found[f"SETTLED_{cluster}"], found[f"SETTLED_{env}"])
    assert 0 == subscriptions("delete", NAME, "--yes")[0]
    left = list_streams(servers)
    assert not [name for name in left if name.endswith(cluster)]
    assert {f"{kind}_{env}_{number}" for kind in ("LANES", "LATER") for number in range(4)} <= left.keys()

    async def keys(etcd):
        return [item.key for item in (await etcd.list(names.key(env, "subscription"))).items]

    assert [] == by_hand(keys)


async def test_node_takes_note_of_a_creation(env, servers, evenlane_in_thread):
    """K10: the command ends once the owners of all partitions follow the new registry."""
    settings = load({"env": env, "nats": servers.nats.url, "etcd": servers.etcd.endpoint}).settings
    etcd = EtcdCoordination(settings.etcd)
    async with running_engine(settings, lambda _message: None) as engine:
        await until(lambda: owners(etcd, env), what="owners of all partitions")
        code, out, _ = await evenlane_in_thread("subscriptions", "create", NAME)
        assert (0, "audit: created, for all projects\n") == (code, out)
        assert await etcd.get(names.key(env, "seen", engine.id)) is not None
        _, out, _ = await evenlane_in_thread("subscriptions", "list", "--json")
        assert [[engine.id], []] == [each["nodes"] for each in json.loads(out)["subscriptions"]]
    await etcd.close()


async def test_leader_counts_the_nodes_of_each(env, servers, evenlane_in_thread):
    """K10: in its metrics, from the creation on. Those of a named one have its name as a label."""
    settings = load({"env": env, "nats": servers.nats.url, "etcd": servers.etcd.endpoint}).settings
    settings = replace(settings, http_port=0)
    async with running_engine(settings) as engine:
        assert [] == await read_metrics(engine, "evenlane_subscription_nodes")
        assert 0 == (await evenlane_in_thread("subscriptions", "create", NAME))[0]
        unnamed = f'{{env="{env}",state="active",subscription=""}} 1.0'

        async def counts(nodes):
            named = f'{{env="{env}",state="active",subscription="{NAME}"}} {nodes}.0'
            return [unnamed, named] == await read_metrics(engine, "evenlane_subscription_nodes")

        await until(partial(counts, 0), what="no node of it")
        async with running_engine(replace(settings, subscription=NAME)) as audit:
            await until(partial(counts, 1), what="its node")
            [leader] = await read_metrics(audit, "evenlane_leader")
            assert leader.startswith(f'{{env="{env}",subscription="{NAME}"}}')
            both = [
                {"name": None, "state": "active", "nodes": 1, "behind": 0, "holds": 0},
                {"name": NAME, "state": "active", "nodes": 1, "behind": 0, "holds": 0},
            ]
            assert both == await read_subscriptions(engine)
            assert both == await read_subscriptions(audit)
        await until(partial(counts, 0), what="the end of its node")


async def read_metrics(engine, name):
    """The samples of a metric on a node's page, each without its name."""
    async with aiohttp.ClientSession() as client, client.get(f"{engine.http.address}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return [line.removeprefix(name) for line in lines if line.startswith(f"{name}{{")]


async def read_subscriptions(engine):
    """What a node's page shows."""
    async with aiohttp.ClientSession() as client, client.get(f"{engine.http.address}/api/overview") as answer:
        return (await answer.json())["subscriptions"]


async def owners(etcd, env):
    """Whether each of the 4 partitions has an owner."""
    return 4 == len((await etcd.list(names.key(env, "owners", ""))).items)


WRONG = """
subscriptions create audit --from tomorrow
subscriptions create audit --from 2200-01-01T00:00:00Z
subscriptions reset audit --to 2200-01-01T00:00:00Z
subscriptions reset audit --to first
subscriptions reset audit --to first --yes
subscriptions reset au_dit --to first --yes
subscriptions reset audit --yes
subscriptions reset --to first
subscriptions create au_dit
subscriptions create audit --projects a.b
subscriptions get audit
subscriptions get au_dit
subscriptions delete audit
subscriptions delete audit --yes
subscriptions delete au_dit --yes
subscriptions create audit --store memory://x
subscriptions create
subscriptions list --env nowhere
subscriptions create audit --env nowhere
"""


def test_wrong_use_is_one_sentence(env, transcript):
    """K10: and changes nothing."""
    transcript.fail(WRONG)
    transcript("subscriptions", "list")
    transcript.check()


def test_twice_is_one_sentence(shown, transcript):
    """K10: a subscription that exists is left as it is."""
    shown("create", NAME)
    shown("create", NAME, "--projects", "acme")
    shown("list")
    transcript.check()


@pytest.mark.parametrize("env", [{"MAX_QUEUE_BACKLOG": "100"}], indirect=True, ids=[""])
def test_environment_with_a_limit_of_its_queues(shown, transcript):
    """K10: NATS would refuse puts for all."""
    shown("create", NAME)
    transcript.check()


def test_broken_off_commands_are_completed(shown, transcript, env, by_hand):
    """K10: `list` shows the states; only the command that was broken off goes on."""
    known = {"audit": Subscription(state="creating", projects=["acme"]), "billing": Subscription(state="deleting")}

    async def begin(etcd):
        await etcd.put(registry_key(env), encode(RegistryRecord(subscriptions=known)))

    by_hand(begin)
    shown("list")
    shown("create", "billing")
    shown("create", "audit", "--projects", "shop")
    shown("create", "audit")
    shown("delete", "billing", "--yes")
    shown("list")
    transcript.check()


def test_seventeenth_is_one_sentence(shown, transcript, env, by_hand):
    """K10: each costs the owners of all partitions some reads."""
    known = {f"s{number}": Subscription(state="active") for number in range(16)}

    async def fill(etcd):
        await etcd.put(registry_key(env), encode(RegistryRecord(subscriptions=known)))

    by_hand(fill)
    shown("create", NAME)
    transcript.check()


def test_values_that_somebody_else_has_written(shown, transcript, env, by_hand):
    """K10: shown as they are, or one sentence."""
    known = {"audit": Subscription(state="active", since=10**30, projects=["\x1b[31m"])}

    async def write(etcd):
        await etcd.put(registry_key(env), encode(RegistryRecord(subscriptions=known)))

    async def spoil(etcd):
        await etcd.put(registry_key(env), b'{"subscriptions": 1}')

    by_hand(write)
    shown("list")
    shown("get", NAME)
    by_hand(spoil)
    transcript.fail("subscriptions list\nsubscriptions create audit\nsubscriptions delete audit --yes")
    transcript.check()


def test_living_nodes_refuse(shown, transcript, env, by_hand):
    """K10: an older node would remove messages; a node of the subscription still works for it."""
    shown("create", NAME)
    reads = {SETTLE_LOG: settle_record.SHARED_VERSION}
    own = names.cluster_name(env, NAME)

    async def join(etcd):
        await etcd.put(names.key(env, "nodes", "old"), encode(NodeRecord()))
        await etcd.put(names.key(own, "nodes", "a1"), encode(NodeRecord(reads=reads)))

    by_hand(join)
    shown("create", "billing")
    shown("delete", NAME, "--yes")
    shown("list")
    transcript.check()


@pytest.mark.parametrize(
    ("answer", "is_left"), [("yes", False), ("Yes ", False), ("y", True), ("no", True), ("", True), ("audit", True)]
)
def test_deletion_asks(subscriptions, at_terminal, answer, is_left):
    """K10: an answer other than yes changes nothing."""
    subscriptions("create", NAME)
    at_terminal(answer)
    code, _, err = subscriptions("delete", NAME)
    assert "This permanently deletes subscription 'audit' of environment" in err
    left = [each["name"] for each in json.loads(subscriptions("list", "--json")[1])["subscriptions"]]
    assert (is_left, is_left) == (bool(code), NAME in left)
    assert is_left == err.endswith("evenlane: the answer was not yes: nothing was deleted\n")


def test_deletion_that_cant_be_is_not_asked_for(subscriptions, at_terminal):
    """K10: the sentence comes at once."""
    at_terminal("y")
    code, out, err = subscriptions("delete", NAME)
    assert (1, "") == (code, out)
    assert err.startswith("evenlane: environment ")
    assert err.endswith("has no subscription 'audit': there is only the one without a name\n")


def test_subscription_begins_with_messages_of_before(shown, transcript, env, evenlane):
    """K10: with all that are stored, or with those since a time."""
    evenlane("topics", "set", "acme", "--qps", "100")
    for number in range(3):
        evenlane("put", "acme", "x", "--id", f"order-{number}")
    shown("create", NAME, "--from", "first")
    shown("create", "search", "--from", "1h")
    shown("create", "billing", "--from", "new")
    for name in (NAME, "search", "billing"):
        shown("reset", name, "--to", "new", "--dry-run")
    transcript.check()


def test_subscription_is_reset(shown, transcript, env, evenlane):
    """K10: how many messages it means; a dry run changes nothing, and neither does a count."""
    evenlane("topics", "set", "acme", "--qps", "100")
    shown("create", NAME)
    for number in range(3):
        evenlane("put", "acme", "x", "--id", f"order-{number}")
    evenlane("put", "acme", "x", "--id", "later", "--delay", "10m")
    shown("reset", NAME, "--to", "new", "--dry-run")
    shown("reset", NAME, "--to", "first", "--dry-run")
    shown("reset", NAME, "--to", "first", "--yes")
    shown("reset", NAME, "--to", "2h", "--yes", "--json")
    shown("reset", NAME, "--to", "new", "--yes", "--json")
    transcript.check()


@pytest.mark.parametrize(("answer", "is_reset"), [("yes", True), ("no", False)])
def test_reset_asks(subscriptions, at_terminal, by_hand, env, answer, is_reset):
    """K10: an answer other than yes changes nothing."""
    subscriptions("create", NAME)
    at_terminal(answer)
    code, _, err = subscriptions("reset", NAME, "--to", "first")
    assert "This resets subscription 'audit' of environment" in err
    assert "so it gets 0 messages" in err

    async def entry(etcd):
        return (read_view(await etcd.get(registry_key(env))).subscriptions or {})[NAME]

    assert (is_reset, is_reset) == (not code, bool(by_hand(entry).reset))
    assert is_reset != err.endswith("evenlane: the answer was not yes: nothing was reset\n")


async def test_running_nodes_begin_again(env, servers, evenlane_in_thread):
    """K10: a node handles again what it has handled; no restart."""
    settings = load({"env": env, "nats": servers.nats.url, "etcd": servers.etcd.endpoint}).settings
    own, seen, held = replace(settings, subscription=NAME, node="a1"), [], asyncio.Event()

    async def hold(_message):
        await held.wait()

    async def note(message):
        seen.append(message.id)

    await evenlane_in_thread("topics", "set", "acme", "--qps", "100")
    async with running_engine(replace(settings, node="n1"), hold):
        assert 0 == (await evenlane_in_thread("subscriptions", "create", NAME))[0]
        async with running_engine(own, note):
            ids = [f"order-{number}" for number in range(5)]
            for each in ids:
                assert 0 == (await evenlane_in_thread("put", "acme", "x", "--id", each))[0]
            await until(lambda: sorted(seen) == ids, what="audit to handle all")
            code, out, err = await evenlane_in_thread("subscriptions", "reset", NAME, "--to", "1h", "--yes")
            assert (0, "audit: reset, and gets 5 messages\n") == (code, out), err
            await until(lambda: sorted(seen) == sorted(2 * ids), what="audit to handle all again")
            held.set()
