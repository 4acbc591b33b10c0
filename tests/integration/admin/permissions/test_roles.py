"""The permissions that `evenlane permissions` prints, on real servers that require them."""

import asyncio

import pytest
from structlog.testing import capture_logs

from evenlane import BacklogFull, Engine, EvenlaneError, InvalidPut, Producer, Put, PutRefused, Receipt
from evenlane.engine.admin.backlog.peek import peek
from evenlane.engine.admin.backlog.purge import purge
from evenlane.engine.admin.dead_letters import client as dead_letters
from evenlane.engine.admin.export.client import StreamReader
from evenlane.engine.admin.plan import view
from evenlane.engine.admin.why.client import why
from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from evenlane.engine.core.export_port import Range
from evenlane.ring.coordination.ports import CoordinationError
from tests.support.permissions.guarded import ENV, ROOT
from tests.support.permissions.roles_at_work import connected, handler, node, set_topics
from tests.support.until import until

pytestmark = pytest.mark.real


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
    with pytest.raises(
        EvenlaneError, match=r"NATS at .* refuses: the credentials are wrong, or none are set \(nats_user"
    ):
        async with Producer(
            settings=servers.settings("producer", etcd_user=ROOT, nats_password_file=tmp_path / "wrong")
        ):
            pass


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
