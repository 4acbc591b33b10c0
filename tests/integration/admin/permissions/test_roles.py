"""The permissions that `evenlane permissions` prints, on real servers that require them."""

import asyncio
import json
from contextlib import asynccontextmanager

import nats
import pytest
from structlog.testing import capture_logs

from evenlane import BacklogFull, Engine, EvenlaneError, InvalidPut, Producer, Put, PutRefused, Receipt, Reject, Topics
from evenlane.engine.admin.backlog.peek import peek
from evenlane.engine.admin.backlog.purge import purge
from evenlane.engine.admin.dead_letters import client as dead_letters
from evenlane.engine.admin.export.client import StreamReader
from evenlane.engine.admin.plan import view
from evenlane.engine.admin.why.client import why
from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.core.export_port import Range
from evenlane.ring.coordination.ports import CoordinationError
from tests.support.node.running import running_engine
from tests.support.permissions.guarded import ENV, ROOT, GuardedServers
from tests.support.until import until

pytestmark = pytest.mark.real
PARTITIONS = 4


async def begin(servers):
    """Start the servers, and create the environment: any test may be the first on them."""
    await servers.start()
    etcd = connections.etcd(servers.settings("node"))
    await agree_cluster_config(etcd, ENV, {"partitions": PARTITIONS})
    await etcd.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    made = GuardedServers(tmp_path_factory.mktemp("guarded"))
    asyncio.run(begin(made))
    yield made
    asyncio.run(made.stop())


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Servers on which the producers of some projects have NATS accounts of their own."""
    made = GuardedServers(tmp_path_factory.mktemp("apart"), "accounts")
    asyncio.run(begin(made))
    yield made
    asyncio.run(made.stop())


@pytest.fixture(scope="module")
def decentral(tmp_path_factory):
    """Servers whose users of NATS have JWTs."""
    made = GuardedServers(tmp_path_factory.mktemp("decentral"), "jwt")
    asyncio.run(begin(made))
    yield made
    asyncio.run(made.stop())


@pytest.fixture(params=["servers", "apart", "decentral"])
def any_kind(request):
    """Servers of each kind."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["servers", "decentral"])
def shared(request):
    """Servers on which all users are in one account."""
    return request.getfixturevalue(request.param)


def node(servers, handle):
    return running_engine(
        servers.settings("node", partitions=PARTITIONS, meter_interval=0.2, settle_interval=0.01), handle
    )


async def set_topics(servers, **fields):
    async with Topics(settings=servers.settings("operator"), by="ann") as topics:
        for project, own in fields.items():
            await topics.set(project, **own)


@asynccontextmanager
async def connected(servers, user):
    """nats-py as this user, and what the server denies it."""
    denied = []

    async def on_error(error):
        denied.append(str(error))

    client = await nats.connect(servers.nats.url, error_cb=on_error, **servers.login(user))
    try:
        yield client, denied
    finally:
        await client.close()


async def stored(servers, subject):
    """How many messages the streams have on this subject."""
    async with connected(servers, ROOT) as (client, _):
        stream = client.jetstream()
        infos = [await stream.stream_info(each.config.name, ">") for each in await stream.streams_info()]
        return sum((info.state.subjects or {}).get(subject, 0) for info in infos)


def handler(handled):
    async def handle(message):
        if message.body == b"bad":
            raise Reject("bad")
        handled.append((message.project, message.body))

    return handle


async def test_each_role_does_its_whole_job(any_kind):
    """S1: a node runs, a producer of one project puts, an operator operates, a reporter reads; nobody is denied
    anything.
    """
    servers, handled = any_kind, []
    with capture_logs() as logs:
        async with node(servers, handler(handled)):
            await work(servers, handled)
    assert [] == [each for each in logs if each["event"] == "NATS denies a subject"]


async def work(servers, handled):
    """What the roles do."""
    await set_topics(servers, acme={"qps": 1_000}, other={"qps": 1_000}, beta={"qps": 1_000})
    async with Producer(settings=servers.settings("producer-acme")) as producer:
        await producer.put("acme", b"1")
        assert not (await producer.put("acme", b"2", id="two")).duplicate
        assert (await producer.put("acme", b"2", id="two")).duplicate
        await producer.put("acme", b"late", delay=0.2, priority="high")
        outcomes = await producer.put_many(Put("acme", b"%d" % number) for number in range(3, 100))
        assert {Receipt} == {type(each) for each in outcomes}
        await producer.put("acme", b"bad")
    async with Producer(settings=servers.settings("shop")) as producer:
        await producer.put("beta", b"3")
    async with Producer(settings=servers.settings("producer")) as producer:
        await producer.put("other", b"4")
    await until(lambda: len(handled) == 102)
    operator = servers.settings("operator")
    assert "acme" == (await why(operator, "acme"))["project"]
    assert "acme" == (await peek(operator, "acme", None, 5))["project"]
    assert (await view.read(operator)).document["nodes"]
    async with dead_letters.opened(operator) as letters:
        await until(lambda: letters.count("acme"))
        await letters.keep(86_400)
        assert 86_400 == await letters.kept()
        await letters.replay("acme")
        await until(lambda: letters.count("acme"))
        await letters.drop("acme")
    await purge(operator, "acme", None)
    await asyncio.to_thread(read_report, servers)


def read_report(servers):
    with StreamReader(servers.settings("reporter")) as reader:
        assert any(each.name == f"METER_{ENV}" for each in reader.streams(f"meter.{ENV}.>"))
        info = reader.stream(f"METER_{ENV}")
        pages = list(reader.read(Range(info.name, info.first, info.last)))
        assert info.messages <= sum(map(len, pages))


async def test_producer_of_one_project_keeps_its_backlog_limit(any_kind):
    """S1: it may read neither the reports about all projects nor the streams, and asks the nodes."""
    servers = any_kind
    release = asyncio.Event()

    async def handle(_message):
        await release.wait()

    async with node(servers, handle):
        await set_topics(servers, acme={"qps": 1_000, "max_backlog": 20})
        try:
            async with Producer(settings=servers.settings("producer-acme")) as producer:
                for _ in range(20):
                    await producer.put("acme", b"x")
                with pytest.raises(BacklogFull, match="its max_backlog is 20"):
                    await producer.put("acme", b"x")
            async with Producer(settings=servers.settings("shop")) as another:  # it learns the count from nodes alone
                outcomes = await another.put_many(Put("acme", b"x") for _ in range(3))
                assert [True] * 3 == [isinstance(each, BacklogFull) for each in outcomes]
        finally:
            release.set()
    await set_topics(servers, acme={"max_backlog": None})


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


async def test_refused_put_names_what_the_user_may_not_publish(servers):
    """S1: an error in the permissions is one sentence at once, and not a timeout."""
    async with node(servers, handler([])):
        await set_topics(servers, acme={"qps": 1_000}, other={"qps": 1_000})
        async with Producer(settings=servers.settings("producer-acme")) as producer:
            with pytest.raises(InvalidPut, match=r"project 'other' is not one of this producer's .*: acme"):
                await producer.put("other", b"x")
        # (the settings of one user, the login of another one)
        mistaken = servers.settings("producer-other", nats_user="producer-acme", nats_inbox="_INBOX.producer-acme")
        async with Producer(settings=mistaken, timeout=25) as producer:
            with pytest.raises(PutRefused, match=rf"this user of NATS may not publish to lanes\.{ENV}\.\d+\.other\."):
                await producer.put("other", b"x")


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


async def test_roles_that_only_look_change_nothing(shared):
    """S1: a reporter changes no stream and no key; an operator takes no partition; nobody deletes a stream."""
    servers = shared
    async with node(servers, handler([])):
        await set_topics(servers, acme={"qps": 1_000})
        for user, verbs in (
            ("reporter", ["STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE"]),
            ("operator", ["STREAM.PURGE", "STREAM.DELETE"]),
            ("node", ["STREAM.DELETE", "STREAM.RESTORE"]),
        ):
            async with connected(servers, user) as (client, denied):
                for verb in verbs:
                    before, _ = len(denied), await client.publish(f"$JS.API.{verb}.LANES_{ENV}_0", b"{}")
                    await client.flush()
                    await until(lambda: len(denied) > before, what=verb)  # noqa: B023 - called at once
        for user, keys in (
            ("reporter", ["topics/acme", "owners/0"]),
            ("operator", ["owners/0", "leader", "plan/x"]),
        ):
            etcd = connections.etcd(servers.settings(user))
            for key in keys:
                with pytest.raises(CoordinationError, match="permission denied"):
                    await etcd.put(names.key(ENV, key), b"{}")
            await etcd.close()


async def test_wrong_password_is_one_sentence(servers, tmp_path):
    """S1: a login that fails names the settings."""
    (tmp_path / "wrong").write_text("wrong")
    with pytest.raises(EvenlaneError, match=r"NATS at .* refuses: the credentials are wrong \(nats_user"):
        async with Producer(
            settings=servers.settings("producer", etcd_user=ROOT, nats_password_file=tmp_path / "wrong")
        ):
            pass


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


@pytest.mark.parametrize("user", ["node", "producer", "producer-acme", "operator", "reporter"])
async def test_forgotten_inbox_is_one_sentence_at_once(shared, user):
    """S1: a user that may subscribe to its own reply subjects alone, and a process that uses the common ones. The
    sentence names the setting.
    """
    servers = shared
    settings = servers.settings(user, nats_inbox="_INBOX", start_timeout=600)
    who = "this user" if settings.nats_user is None else f"user {user}"
    sentence = (
        rf"^NATS at nats:\S+ refuses: {who} may not subscribe to its reply subjects, _INBOX\.>: set nats_inbox to"
    )
    with pytest.raises(EvenlaneError, match=sentence):
        await begin_work(user, settings)


async def begin_work(user, settings):
    """Begin what a process of this user does."""
    async with asyncio.timeout(60):
        if user == "node":
            async with Engine(lambda _message: None, settings=settings) as engine:
                await engine.run()
        elif user.startswith("producer"):
            async with Producer(settings=settings, timeout=600):
                pass
        elif user == "operator":
            await peek(settings, "acme", None, 5)
        else:
            await asyncio.to_thread(StreamReader(settings).__enter__)
