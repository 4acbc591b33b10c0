"""HTTPS of a node: the certificate, its renewal without a restart, and files that aren't valid."""

import asyncio
import shutil
import socket
import ssl
from contextlib import asynccontextmanager

import aiohttp
import pytest
from structlog.testing import capture_logs

from evenlane.engine.errors import ConfigError
from evenlane.engine.http.server.certificate import Certificate
from evenlane.engine.http.server.server import HttpServer, ServerTuning
from tests.support.certificates import make_certificate
from tests.support.until import until

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")


async def answer(scope, _receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


@pytest.fixture
def files(tmp_path):
    """The files that the settings name."""
    return make_certificate(tmp_path, "server")


@asynccontextmanager
async def serving(files, tuning):
    made = HttpServer(answer, "127.0.0.1", 0, tuning=tuning, tls=Certificate(*files).context)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def server(files):
    async with serving(files, ServerTuning()) as made:
        yield made


async def get(server, authority, address=None):
    """The answer to a client that trusts this authority alone, on a connection of its own."""
    trust = ssl.create_default_context(cafile=authority)
    async with aiohttp.ClientSession() as client, client.get(address or server.address, ssl=trust) as response:
        return await response.text()


async def trusts(server, authority):
    try:
        return "https" == await get(server, authority)
    except aiohttp.ClientConnectorCertificateError:
        return False


def replace(files, folder, name):
    """Put another certificate and its key in the place of the files, each as a whole."""
    authority = None
    for made, file in zip(make_certificate(folder, name), files, strict=True):
        authority = authority or shutil.copy(made, folder / f"{name}-authority.pem")
        made.replace(file)
    return authority


async def test_https_is_served_and_nothing_else(server, files):
    assert server.address.startswith("https://127.0.0.1:")
    assert "https" == await get(server, files[0])
    with pytest.raises(aiohttp.ClientError):
        await get(server, files[0], server.address.replace("https:", "http:"))


async def test_new_files_are_served_without_a_restart(server, files, tmp_path):
    """S2: from the next connection on. One that exists goes on."""
    old = shutil.copy(files[0], tmp_path / "old.pem")
    trust = ssl.create_default_context(cafile=old)
    async with aiohttp.ClientSession() as client:
        async with client.get(server.address, ssl=trust) as response:
            await response.read()
        new = replace(files, tmp_path, "new")
        assert await trusts(server, new)
        assert not await trusts(server, old)


async def test_files_that_are_not_valid_leave_the_last_valid_ones(server, files, tmp_path):
    """S2: also between the replacements of the two files."""
    cert, key = files
    old = shutil.copy(cert, tmp_path / "old.pem")
    other_cert, other_key = make_certificate(tmp_path, "other")
    authority = shutil.copy(other_cert, tmp_path / "authority.pem")
    with capture_logs() as logs:
        other_cert.replace(cert)
        assert await trusts(server, old)
        assert await trusts(server, old)
        other_key.replace(key)
        assert await trusts(server, authority)
        cert.unlink()
        assert await trusts(server, authority)
    warnings = [each["reason"] for each in logs if each["log_level"] == "warning"]
    assert 2 == len(warnings)  # once for each change
    assert warnings[0].startswith(f"http_cert and http_key: {cert} and {key} are not a certificate and its key in PEM")
    assert "No such file or directory" in warnings[1]


async def test_client_that_does_not_shake_hands_is_disconnected(files):
    """A connection without a handshake takes a place, too."""
    async with serving(files, ServerTuning(asks_within_s=0.2)) as hasty:
        host, port = hasty.address.removeprefix("https://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert b"" == await asyncio.wait_for(reader.read(), 30)  # asyncio itself waits for a minute
        writer.close()


async def test_client_that_breaks_off_is_not_logged(server, files, caplog):
    host, port = server.address.removeprefix("https://").split(":")
    for hello in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x00\xff", b"\0" * 1_000):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(hello)
    await until(lambda: trusts(server, files[0]))
    assert [] == caplog.records


def cut(path):
    path.write_bytes(path.read_bytes()[:500])


@pytest.mark.parametrize("broken", ["cut off", "another key", "encrypted", "missing"])
def test_files_that_are_not_valid_are_one_sentence_at_the_start(files, tmp_path, broken):
    """S2: it names the settings and the files."""
    cert, key = files
    if broken == "cut off":
        cut(cert)
    elif broken == "another key":
        key = make_certificate(tmp_path, "other")[1]
    elif broken == "missing":
        key.unlink()
    else:
        key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIFHzBJ\n-----END ENCRYPTED PRIVATE KEY-----\n")
    with pytest.raises(ConfigError) as caught:
        Certificate(cert, key)
    sentence = f"http_cert and http_key: {cert} and {key} are not a certificate and its key in PEM: "
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_expired_certificate_is_found_at_the_start(tmp_path):
    """S2: with its date."""
    files = make_certificate(tmp_path, until="20240301120000Z")
    with pytest.raises(ConfigError, match=r"http_cert: the certificate in .* expired on 2024-03-01 12:00 UTC"):
        Certificate(*files)
