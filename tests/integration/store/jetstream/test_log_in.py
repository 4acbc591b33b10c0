"""Logging in to NATS: TLS, passwords and credentials, and the errors for mistyped ones."""

import asyncio
import json
import logging
import shutil
import ssl
import subprocess

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.errors import ConfigError, EvenlaneError, Unreachable
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from tests.support.permissions.jwt import Operator

INFO = b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"auth_required":true}\r\n'


@pytest.fixture
def password(tmp_path):
    path = tmp_path / "password"
    path.write_text("S3CRET")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(certificate, key), self-signed, for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made by openssl")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=nats",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


async def opened(settings):
    connection = connections.bus(settings, "a test")
    await connection.open()
    await connection.close()


class RecordingServer:
    """A server that greets as NATS does, without TLS or with, and records the bytes that it receives."""

    def __init__(self, context=None, info=INFO):
        self._context, self._info, self.received = context, info, b""

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._greet, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()

    def cut(self):
        self._writer.transport.abort()

    async def _greet(self, reader, writer):
        self._writer = writer
        writer.write(self._info)
        if self._context is not None:
            await writer.start_tls(self._context)
        while data := await reader.read(4096):
            self.received += data
            if b"PING" in data:
                writer.write(b"PONG\r\n")
        writer.close()


@pytest.mark.parametrize(("scheme", "with_ca"), [("tls", False), ("nats", True)])
async def test_nothing_is_sent_to_server_without_required_tls(certificate, password, scheme, with_ca):
    """A password in clear text would be worse than no connection."""
    async with RecordingServer() as server:
        settings = Settings(
            nats=(f"{scheme}://127.0.0.1:{server.port}",), nats_user="bob", nats_password_file=password,
            nats_ca=certificate[0] if with_ca else None,
        )  # fmt: skip
        with pytest.raises(EvenlaneError, match=r"NATS at .* refuses: it offers no TLS, which tls:// or nats_ca"):
            await opened(settings)
        assert b"" == server.received


@pytest.mark.parametrize("offer", ["tls_required", "tls_available"])
async def test_offered_tls_is_used(certificate, password, offer, caplog):
    """Although the server would take clear text."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with RecordingServer(context, INFO.replace(b"}", b',"%b":true}' % offer.encode())) as server:
        settings = Settings(
            nats=(f"nats://127.0.0.1:{server.port}",), nats_user="bob", nats_password_file=password,
            nats_ca=certificate[0],
        )  # fmt: skip
        await opened(settings)
        assert b"S3CRET" in server.received  # received through TLS


@pytest.mark.real
async def test_server_with_tls_needs_trusted_certificate(tmp_path, certificate, password):
    cert, key = certificate
    server = NatsServer(
        tmp_path / "nats",
        config=f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\nauthorization {{ user: bob, password: S3CRET }}',
    )
    await server.start()
    try:
        login = {"nats": (server.url,), "nats_user": "bob", "nats_password_file": password}
        await opened(Settings(**login, nats_ca=cert))
        with pytest.raises(EvenlaneError, match=r"refuses: its certificate isn't trusted \(nats_ca\): self-signed"):
            await opened(Settings(**login))
    finally:
        await server.stop()


async def test_refusing_server_of_several_is_skipped(certificate, password):
    """Also after a lost connection; nats-py tries the servers in any order."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with RecordingServer() as bad, RecordingServer(context, INFO.replace(b"}", b',"tls_required":true}')) as good:
        settings = Settings(
            nats=tuple(f"nats://127.0.0.1:{each.port}" for each in (bad, good)), nats_ca=certificate[0],
            nats_user="bob", nats_password_file=password,
        )  # fmt: skip
        connection = connections.bus(settings, "a test")
        await connection.open()
        for _ in range(4):
            back = asyncio.Event()
            connection.on_back = [back.set]
            good.cut()
            await asyncio.wait_for(back.wait(), 60)
        await connection.close()
        assert b"" == bad.received


async def test_other_protocol_at_address_is_reported():
    """Such as etcd's port: it accepts the connection, and waits for a request."""

    async def wait(reader, _writer):
        await reader.read()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = Connection(NatsOptions((f"nats://127.0.0.1:{port}",), connect_timeout=0.3), "a test")
    with pytest.raises(Unreachable, match=r"does not answer: TimeoutError; .* doesn't speak the NATS protocol"):
        await connection.open()
    server.close()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("nats_ca",), "nats_ca: .*wrong contains no readable certificates in PEM"),
        (("nats_cert", "nats_key"), "nats_cert and nats_key: .* are not a certificate and its key in PEM"),
        (("nats_creds_file",), "nats_creds_file: .*wrong contains no NATS credentials: a user's JWT and the seed"),
    ],
)
async def test_invalid_file_is_named(tmp_path, given, sentence):
    """Before any connection."""
    wrong = tmp_path / "wrong"
    wrong.write_text("S3CRET")
    with pytest.raises(ConfigError, match=sentence) as error:
        await opened(Settings(nats=("nats://127.0.0.1:1",), **dict.fromkeys(given, wrong)))
    assert "S3CRET" not in str(error.value)


@pytest.mark.parametrize("given", [("etcd_ca",), ("etcd_cert", "etcd_key")])
def test_invalid_file_for_etcd_is_named(tmp_path, given):
    wrong = tmp_path / "wrong"
    wrong.write_text("S3CRET")
    with pytest.raises(ConfigError, match=f"{given[0]}.*: .*wrong"):
        connections.etcd(Settings(**dict.fromkeys(given, wrong)))


@pytest.mark.real
async def test_port_of_nats_given_for_etcd_is_reported(nats_server):
    client = connections.etcd(Settings(etcd=(f"127.0.0.1:{nats_server.port}",)))
    with pytest.raises(Exception, match="the server there doesn't speak the etcd protocol"):
        await client.status()
    await client.close()


# ---- credentials: a user's JWT, signed by its account, signed by the operator


@pytest.mark.real
async def test_credentials_file_logs_in(tmp_path):
    operator, creds = Operator(), tmp_path / "user.creds"
    creds.write_text(operator.user())
    server = NatsServer(tmp_path / "nats", config=operator.server_config)
    await server.start()
    try:
        await opened(Settings(nats=(server.url,), nats_creds_file=creds))
        with pytest.raises(EvenlaneError, match="refuses: the credentials are wrong"):
            await opened(Settings(nats=(server.url,)))
    finally:
        await server.stop()


def test_eof_warning_of_asyncio_is_not_logged(capsys):
    from evenlane.engine.base import log_setup

    log_setup.setup("json")
    logging.getLogger("asyncio").warning("returning true from eof_received() has no effect when using ssl")
    logging.getLogger("asyncio").warning("something else")
    assert ["something else"] == [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
