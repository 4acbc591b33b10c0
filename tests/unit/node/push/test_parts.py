"""E17: the pure parts of a push: addresses, Retry-After, signatures, headers, error texts."""

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from evenlane.engine.node.push.addresses import is_public
from evenlane.engine.node.push.request import headers_of
from evenlane.engine.node.push.response import PushResponse, confidential_of, failure, quote, where
from evenlane.engine.node.push.retry_after import LEAST_S, MOST_S, pause_s
from evenlane.engine.node.push.secret_files import NoSecret, SecretFiles
from evenlane.engine.node.push.signature import keys, signature, webhook_id

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC).timestamp()


dates = st.builds(  # many of them impossible
    "{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT".format, st.sampled_from(["Sat", "Sun", "Xyz"]), st.integers(0, 40),
    st.sampled_from(["Feb", "Nov", "Xyz"]), st.integers(0, 9_999), st.integers(0, 30), st.integers(0, 70),
    st.integers(0, 70),
)  # fmt: skip


class TestAddresses:
    @pytest.mark.parametrize(
        "address",
        [
            "127.0.0.1", "127.8.9.1", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1",
            "169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "192.0.0.192", "198.18.0.1",
            "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16", "192.0.2.1",
            "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1",
            "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::7f00:1",
            "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:7f00:1::1", "100::1", "5f00::1",
        ],
    )  # fmt: skip
    def test_reserved_addresses_are_not_public(self, address):
        assert not is_public(address)

    @pytest.mark.parametrize(
        "address",
        ["1.1.1.1", "8.8.8.8", "93.184.215.14", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "::ffff:8.8.8.8",
         "64:ff9b::808:808"],
    )  # fmt: skip
    def test_global_addresses_are_public(self, address):
        assert is_public(address)

    @given(st.ip_addresses(v=4))
    def test_mapped_addresses_are_as_public_as_the_original(self, address):
        assert is_public(str(address)) == is_public(f"::ffff:{address}") == is_public(f"64:ff9b::{address}")


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            ("30", 30), (" 7 ", 7), ("0", LEAST_S), ("999999999999", MOST_S), ("3601", MOST_S),
            ("Sat, 21 Nov 2026 12:00:42 GMT", 42), ("Saturday, 21-Nov-26 12:00:42 GMT", 42),
            ("Sat Nov 21 12:00:42 2026", 42), ("Fri, 20 Nov 2026 12:00:00 GMT", LEAST_S),
            ("Fri, 31 Dec 9999 23:59:59 GMT", MOST_S),
        ],
    )  # fmt: skip
    def test_seconds_and_dates_are_accepted(self, value, seconds):
        assert seconds == pause_s(value, NOW)

    @pytest.mark.parametrize(
        "value",
        ["", "-5", "+5", "1.5", "1e3", "5s", "soon", "٣", "NaN", "9" * 400, "Sat, 21 Nov 2026 12:00:42",
         "Sat, 31 Feb 2026 12:00:00 GMT", "Sat, 21 Nov 2026 25:00:00 GMT", "2026-11-21T12:00:42Z", "Sat, 21 Nov"],
    )  # fmt: skip
    def test_malformed_value_is_none(self, value):
        assert pause_s(value, NOW) is None

    @given(st.text() | dates)
    def test_pause_is_bounded(self, value):
        found = pause_s(value, NOW)
        assert found is None or LEAST_S <= found <= MOST_S


class TestSignature:
    raw = b"0123456789abcdef01234567"
    whsec = "whsec_" + base64.b64encode(raw).decode()

    @pytest.mark.parametrize("text", [whsec, whsec.rstrip("="), f"\n{whsec}\n", raw.decode()])
    def test_secret_may_be_base64_or_plain(self, text):
        assert (self.raw,) == keys(text)

    @pytest.mark.parametrize("text", ["", " \n", "whsec_", "whsec_*", "whsec_abc=de", "good whsec_!"])
    def test_error_of_an_invalid_secret_does_not_show_it(self, text):
        with pytest.raises(ValueError, match=r"it is empty|whsec_ in it") as caught:
            keys(text)
        assert "*" not in str(caught.value)

    @given(st.text(st.characters(max_codepoint=127), max_size=50).map(str.encode), st.text(min_size=1, max_size=20))
    def test_reference_library_verifies_the_signature(self, body, name):
        """Independent oracle: standardwebhooks."""
        now = int(datetime.now(tz=UTC).timestamp())
        identity = webhook_id("acme", name.encode("utf-8", "replace").decode())
        signed = signature((b"another key", self.raw), identity, now, body)
        headers = {"webhook-id": identity, "webhook-timestamp": str(now), "webhook-signature": signed}
        Webhook(self.whsec).verify(body, headers, json_parse=False)
        with pytest.raises(Exception, match="No matching"):
            Webhook(self.whsec).verify(body + b"x", headers, json_parse=False)

    @given(st.text(max_size=30), st.text(max_size=30))
    def test_webhook_ids_are_unique_and_fit_into_a_header(self, one, other):
        one, other = (text.encode("utf-8", "replace").decode() for text in (one, other))
        identity = webhook_id("acme", one)
        assert (one == other) == (identity == webhook_id("acme", other))
        assert identity.isascii()
        assert identity.isprintable()
        assert not set(". ") & set(identity)


class TestSecretFiles:
    def test_secret_is_read_again_after_five_seconds(self, tmp_path):
        files = SecretFiles(tmp_path)
        (tmp_path / "a").write_text("one two")
        assert (b"one", b"two") == files.get("a", 0).keys
        (tmp_path / "a").write_text("three")
        assert (b"one", b"two") == files.get("a", 4_999_999_999).keys
        assert (b"three",) == files.get("a", 5_000_000_000).keys

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (None, "there is no such file"),
            (b"", "it is empty"),
            (b"\xff", "isn't UTF-8 text"),
            (b"whsec_!!", "not base64"),
        ],
    )
    def test_error_of_an_unusable_secret_is_one_sentence(self, tmp_path, content, reason):
        if content is not None:
            (tmp_path / "a").write_bytes(content)
        with pytest.raises(NoSecret, match=reason) as caught:
            SecretFiles(tmp_path).get("a", 0)
        assert "\n" not in str(caught.value)

    def test_error_without_a_secrets_folder_names_the_setting(self):
        with pytest.raises(NoSecret, match="no push_secrets"):
            SecretFiles(None).get("a", 0)


class TestHeaders:
    def made(self, message=None, topic=None, signature=None):
        return headers_of(message or {}, topic or {}, identity="acme:1", timestamp=5, attempt=2, signature=signature)

    def test_default_headers(self):
        made = self.made()
        assert made.pop("user-agent").startswith("Evenlane/")
        assert {
            "content-type": "application/octet-stream", "accept-encoding": "identity", "webhook-id": "acme:1",
            "webhook-timestamp": "5", "evenlane-attempt": "2",
        } == made  # fmt: skip

    def test_headers_of_the_topic_override_those_of_the_message(self):
        made = self.made({"Content-Type": "text/plain", "AUTHORIZATION": "message"}, {"Authorization": "topic"})
        assert ("text/plain", "topic") == (made["content-type"], made["authorization"])
        assert "AUTHORIZATION" not in made

    @pytest.mark.parametrize(
        ("name", "value"),
        [("Host", "x"), ("Connection", "x"), ("transfer-encoding", "chunked"), ("Content-Length", "5"), ("a b", "x"),
         ("A", "b\r\nC: d"), ("A", "b\nC: d"), ("A", "\x00"), ("Webhook-Id", "x"), ("Accept-Encoding", "gzip"),
         ("Expect", "100-continue"), ("A\r\nB", "c"), ("", "x")],
    )  # fmt: skip
    def test_forbidden_headers_are_left_out(self, name, value):
        assert self.made() == self.made({name: value})

    def test_traceparent_is_passed_on(self):
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        assert trace == self.made({"traceparent": trace})["traceparent"]


class TestFailure:
    def test_error_has_status_address_and_answer(self):
        error = failure(PushResponse(500, None, b"out of\r\n  order"), "https://a.example/x", ())
        assert "HTTP 500 from https://a.example/x: out of order" == str(error)
        assert error.is_outage

    @pytest.mark.parametrize(
        ("status", "outage"), [(400, False), (404, False), (410, False), (429, False), (503, True)]
    )
    def test_only_server_errors_are_outages(self, status, outage):
        assert outage == failure(PushResponse(status, None, b""), "http://a", ()).is_outage

    def test_quoted_answer_is_one_short_line(self):
        assert "x" * 200 == quote(b"x" * 5_000, ())
        assert "ä" * 100 == quote("ä".encode() * 5_000, ())
        assert "\ufffd a b" == quote(b"\xff\x00\x1b a\xe2\x80\xa8b", ()).replace("[", "")

    def test_quoted_answer_shows_no_secret_even_where_it_is_cut(self):
        hidden = confidential_of("https://a/x?token=t0ps3cret&b", ["Bearer abc123def", "s"])
        echo = b"x" * 195 + b"abc123def"
        assert "abc12" not in quote(echo, hidden)
        assert "you sent *** and *** and ***" == quote(b"you sent Bearer abc123def and t0ps3cret and abc123def", hidden)

    def test_address_is_shown_without_its_query(self):
        assert "https://a/x" == where("https://a/x?token=1")

    @given(st.binary(max_size=400))
    def test_quoted_answer_is_bounded(self, start):
        text = quote(start, ())
        assert len(text.encode()) <= 200
        assert len(text.splitlines()) <= 1
