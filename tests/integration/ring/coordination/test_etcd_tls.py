"""etcd with TLS: a proxy in front of it speaks TLS and requests the client's certificate."""

import shutil
import ssl
import subprocess
from contextlib import asynccontextmanager

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import CoordinationError, Unavailable
from tests.support.certificates import make_certificate
from tests.support.etcd.harness import next_update, short
from tests.support.etcd.proxy import Proxy
from tests.support.until import until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl"),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A key and its self-signed certificate for 127.0.0.1, for client, server and authority."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=etcd",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return {"ca_cert": str(cert), "cert_key": str(key), "cert_cert": str(cert)}


@pytest.fixture
async def tls_proxy(certificates, etcd_server):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates["ca_cert"])
    context.load_cert_chain(certificates["cert_cert"], certificates["cert_key"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    proxy = Proxy(etcd_server.endpoint, context)
    await proxy.start()
    yield proxy
    await proxy.cut()


@pytest.mark.parametrize("members", [1, 3])
async def test_calls_and_watches_use_tls(tls_proxy, certificates, members):
    client = EtcdCoordination([tls_proxy.endpoint] * members, **certificates)
    await client.put("/tls/a", b"1")
    assert ("listing", "a") == short(await next_update(client.watch("/tls/")))
    await client.close()


async def test_client_without_certificate_gets_no_answer(tls_proxy, certificates):
    client = EtcdCoordination([tls_proxy.endpoint], ca_cert=certificates["ca_cert"])
    with pytest.raises(Unavailable):
        await client.get("a")
    await client.close()


async def test_missing_certificate_is_named(tls_proxy):
    client = EtcdCoordination([tls_proxy.endpoint], ca_cert="/nowhere/ca.pem")
    with pytest.raises(CoordinationError, match=r"certificate /nowhere/ca\.pem can't be read"):
        await client.get("a")
    await client.close()


@asynccontextmanager
async def served(etcd_server, cert, key, endpoint=None):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2"])
    proxy = Proxy(etcd_server.endpoint, context, endpoint)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.cut()


async def test_new_certificates_need_no_restart(etcd_server, tmp_path):
    """S2: etcd has a certificate of another authority, and the file that the client was given names that one."""
    cert, key = make_certificate(tmp_path, "server")
    trusted = tmp_path / "ca.pem"
    shutil.copy(cert, trusted)
    async with served(etcd_server, cert, key) as before:
        client = EtcdCoordination([before.endpoint], ca_cert=str(trusted))
        await client.put("/tls/a", b"1")
    make_certificate(tmp_path, "server")
    async with served(etcd_server, cert, key, before.endpoint):
        with pytest.raises(Unavailable):
            await client.get("/tls/a")
        shutil.copy(cert, trusted)

        async def is_answered():
            try:
                return await client.get("/tls/a")
            except Unavailable:
                return None

        assert b"1" == (await until(is_answered, 60)).value
    await client.close()


async def test_expired_certificate_is_one_sentence(etcd_server, tmp_path):
    """S2: with the date, for a node that waits for etcd as well as for a command."""
    authority = make_certificate(tmp_path, "authority")
    async with served(etcd_server, *make_certificate(tmp_path, until="20240301120000Z", by=authority)) as proxy:
        client = connections.etcd(Settings(etcd=(proxy.endpoint,), etcd_ca=authority[0]))
        for _ in range(2):
            with pytest.raises(Unavailable) as caught:
                await client.get("/tls/a")
            expected = f"does not answer: the certificate of {proxy.endpoint} expired on 2024-03-01 12:00 UTC"
            assert str(caught.value).endswith(expected)
        await client.close()
