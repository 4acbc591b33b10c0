"""Passwords, credentials and certificates that change while processes run."""

import asyncio
import shutil
from functools import partial

import nkeys
import pytest
from structlog.testing import capture_logs

from evenlane import ConfigError, Engine, EvenlaneError, Producer, Topics
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.runtime.embedded.nats import NatsServer
from tests.support.certificates import make_certificate
from tests.support.permissions.guarded import GuardedServers
from tests.support.permissions.jwt import credentials, make_key
from tests.support.until import until

pytestmark = pytest.mark.real
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")


@pytest.fixture
async def servers(tmp_path):
    made = GuardedServers(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def running(servers):
    """A node, and a producer that may put to one project."""
    handled, ready = [], asyncio.Event()
    settings = servers.settings("node", partitions=4)
    async with Engine(
        lambda message: handled.append(message.body), settings=settings, on_ready=lambda *_: ready.set()
    ) as made:
        serving = asyncio.create_task(made.run())
        await asyncio.wait_for(ready.wait(), 60)
        async with Topics(settings=servers.settings("operator"), by="ann") as topics:
            await topics.set("acme", qps=1_000)
        async with Producer(settings=servers.settings("producer-acme")) as producer:
            await producer.put("acme", b"before")
            await until(lambda: handled == [b"before"])
            yield producer, handled
        made.stop()
        assert await serving


@pytest.mark.parametrize("first", ["the server", "the file"])
async def test_new_nats_password_needs_no_restart(servers, running, first):
    """S2: whichever is changed first, node and producer go on when both have the new password."""
    producer, handled = running
    reloads = servers.count_in_nats_log("Reloaded server configuration")
    for name in ("node", "producer-acme"):
        if first == "the file":
            servers.write_password(name, "another-one")
        servers.change_nats_password(name, "another-one")
        reloads += 1
        await until(lambda: servers.count_in_nats_log("Reloaded server configuration") == reloads)  # noqa: B023
        if first == "the server":
            refused = servers.count_in_nats_log("authentication error")
            await until(lambda: servers.count_in_nats_log("authentication error") > refused)  # noqa: B023 - of a new try
            servers.write_password(name, "another-one")
    await producer.put("acme", b"after")
    await until(lambda: b"after" in handled)
    assert handled.count(b"before") == 1


@pytest.mark.parametrize("first", ["the server", "the file"])
async def test_new_etcd_password_needs_no_restart(servers, running, first):
    """S2: etcd drops the login with the password; the node keeps its lease, and the producer its topics."""
    producer, _ = running
    for name in ("node", "producer-acme"):
        if first == "the file":
            servers.write_password(name, "another-one")
        await asyncio.to_thread(servers.change_etcd_password, name, "another-one")
        if first == "the server":
            servers.write_password(name, "another-one")
    async with Topics(settings=servers.settings("operator"), by="ann") as topics:
        await topics.set("acme", state="draining")  # the node accepts it, and the producer hears of it

    async def refused():
        try:
            await producer.put("acme", b"x")
        except EvenlaneError as error:
            return "draining" in str(error)

    await until(refused)


def user_credentials(folder, name):
    path = folder / "user.creds"
    path.write_text(credentials(name, make_key(nkeys.PREFIX_BYTE_USER)[0]))
    return path


async def test_new_credentials_file_is_used_at_the_next_login(tmp_path):
    """S2: also if the file was broken meanwhile."""
    logins = []

    async def greet(reader, writer):
        writer.write(
            b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"nonce":"abc","auth_required":true}\r\n'
        )
        try:
            while line := await reader.readline():
                if line.startswith(b"CONNECT"):
                    logins.append((line, writer))
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
        except ConnectionError:
            pass
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        path = user_credentials(tmp_path, "first.jwt.x")
        bus = connections.bus(Settings(nats=(f"nats://127.0.0.1:{port}",), nats_creds_file=path), "a test")
        await bus.open()
        path.write_text("broken")
        logins[0][1].transport.abort()
        await until(lambda: not bus.is_connected)
        user_credentials(tmp_path, "second.jwt.x")
        await until(lambda: len(logins) > 1 and bus.is_connected)
        await bus.close()
    assert b"first.jwt.x" in logins[0][0]
    assert b"second.jwt.x" in logins[-1][0]


def tls_config(cert, key):
    return f'tls {{ cert_file: "{cert}", key_file: "{key}" }}'


@needs_openssl
async def test_new_certificates_of_nats_need_no_restart(tmp_path):
    """S2: the server has a certificate of another authority, and the file of the setting names that one."""
    cert, key = make_certificate(tmp_path, "server")
    trusted = tmp_path / "ca.pem"
    shutil.copy(cert, trusted)
    server = NatsServer(tmp_path / "nats", config=tls_config(cert, key))
    await server.start()
    bus = connections.bus(Settings(nats=(server.url,), nats_ca=trusted), "a test")
    await bus.open()
    await server.stop()
    await until(lambda: not bus.is_connected)
    make_certificate(tmp_path, "server")
    await server.start()
    shutil.copy(cert, trusted)
    await until(lambda: bus.is_connected, 30)
    await bus.close()
    await server.stop()


@needs_openssl
async def test_expired_certificate_of_nats_is_one_sentence(tmp_path):
    """S2: with the date."""
    authority = make_certificate(tmp_path, "authority")
    cert, key = make_certificate(tmp_path, until="20240301120000Z", by=authority)
    server = NatsServer(tmp_path / "nats", config=tls_config(cert, key))
    await server.start()
    where = server.url.removeprefix("nats://")
    with pytest.raises(EvenlaneError, match=rf"refuses: the certificate of {where} expired on 2024-03-01 12:00 UTC$"):
        await connections.bus(Settings(nats=(server.url,), nats_ca=authority[0]), "a test").open()
    await server.stop()


@needs_openssl
async def test_running_process_says_why_a_server_refuses_its_connection(tmp_path):
    """S2: the server comes back with a certificate that has expired. The log names the reason once."""
    authority = make_certificate(tmp_path, "authority")
    cert, key = tmp_path / "server.pem", tmp_path / "server.key"
    for kind, days in (("valid", "20990301120000Z"), ("expired", "20240301120000Z")):
        make_certificate(tmp_path, kind, until=days, by=authority)
    _copy(tmp_path, "valid")
    server = NatsServer(tmp_path / "nats", config=tls_config(cert, key))
    await server.start()
    where = server.url.removeprefix("nats://")
    with capture_logs() as logs:
        bus = connections.bus(Settings(nats=(server.url,), nats_ca=authority[0]), "a test")
        await bus.open()
        await server.stop()
        _copy(tmp_path, "expired")
        await server.start()
        refused = await until(lambda: [each for each in logs if each["event"] == "NATS refuses the connection"])
        await server.stop()
        _copy(tmp_path, "valid")
        await server.start()
        await until(lambda: bus.is_connected)
    assert [f"the certificate of {where} expired on 2024-03-01 12:00 UTC"] == [each["reason"] for each in refused]
    await bus.close()
    await server.stop()


def _copy(folder, kind):
    for end in ("pem", "key"):
        shutil.copy(folder / f"{kind}.{end}", folder / f"server.{end}")


@needs_openssl
@pytest.mark.parametrize("setting", ["nats_ca", "nats_cert", "etcd_ca", "etcd_cert"])
async def test_own_expired_certificate_is_found_at_start(tmp_path, setting):
    """S2: before any connection is made."""
    cert, key = make_certificate(tmp_path, until="20240301120000Z")
    more = {"nats_cert": {"nats_key": key}, "etcd_cert": {"etcd_key": key}}.get(setting, {})
    settings = Settings(**{setting: cert, **more})
    connect = connections.bus(settings, "a test").open if setting.startswith("nats") else partial(opened_etcd, settings)
    with pytest.raises(
        ConfigError, match=rf"{setting}: the certificate in .*cert\.pem expired on 2024-03-01 12:00 UTC"
    ):
        await connect()


async def opened_etcd(settings):
    await connections.etcd(settings).status()
