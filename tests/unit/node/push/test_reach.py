"""E17 on real sockets: the addresses to which a node pushes, and the certificates that it trusts."""

import socket

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.push.pusher import Pusher
from tests.support.push.pushing import failed
from tests.support.push.receiver import message, receiving


class TestPrivateAddresses:
    @pytest.fixture
    async def public(self):
        made = Pusher(Settings())
        yield made
        await made.close()

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
    async def test_loopback_is_refused_by_default(self, receiver, public, host):
        port = receiver.url.rpartition(":")[2]
        error = await failed(public, message(f"http://{host}:{port}/"))
        assert "is not a public address, and this node pushes only to those (push_private)" in str(error)
        assert [] == receiver.seen

    @pytest.mark.parametrize("host", ["169.254.169.254", "10.0.0.1", "[fd00:ec2::254]", "192.168.0.1"])
    async def test_private_networks_and_metadata_are_refused_by_default(self, public, host):
        """At once, as no request is sent."""
        error = await failed(public, message(f"http://{host}/latest/meta-data/", push={"timeout": 3_600}))
        assert "is not a public address" in str(error)

    async def test_dns_rebinding_does_not_reach_a_private_address(self, receiver, public, monkeypatch):
        """The address of the connection is checked, not that of an earlier lookup."""
        port = int(receiver.url.rpartition(":")[2])

        def look_up(_host, _port, **_more):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr("evenlane.engine.node.push.resolver.socket.getaddrinfo", look_up)
        error = await failed(public, message(f"http://rebinding.example:{port}/"))
        assert "127.0.0.1 is not a public address" in str(error)
        assert [] == receiver.seen

    async def test_proxy_of_the_environment_is_not_used(self, receiver, pusher, monkeypatch):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        await pusher(message(receiver.url))


class TestTls:
    @pytest.fixture
    def authority(self):
        import trustme

        return trustme.CA()

    @pytest.fixture
    async def secured(self, authority):
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        async with receiving(context) as made:
            yield made

    async def test_untrusted_certificate_is_refused(self, secured, pusher):
        error = await failed(pusher, message(f"{secured.url}/x"))
        assert "the certificate is not trusted (unable to get local issuer certificate)" in str(error)
        assert str(error).endswith(f": {secured.url}/x")
        assert [] == secured.seen

    async def test_push_ca_trusts_its_certificates_for_their_names(self, secured, authority, tmp_path):
        ca = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(ca))
        pusher = Pusher(Settings(push_private=True, push_ca=ca))
        try:
            await pusher(message(secured.url))
            assert 1 == len(secured.seen)
            error = await failed(pusher, message(secured.url.replace("127.0.0.1", "localhost")))
            assert "the certificate is not trusted (Hostname mismatch" in str(error)
        finally:
            await pusher.close()

    async def test_plain_http_answer_to_tls_fails_the_attempt(self, receiver, pusher):
        error = await failed(pusher, message(receiver.url.replace("http:", "https:")))
        assert "no TLS connection (" in str(error)

    def test_invalid_push_ca_is_rejected_at_start(self, tmp_path):
        (tmp_path / "ca.pem").write_text("x")
        with pytest.raises(ConfigError, match=r"push_ca: .*ca\.pem contains no readable certificates in PEM"):
            Pusher(Settings(push_ca=tmp_path / "ca.pem"))
