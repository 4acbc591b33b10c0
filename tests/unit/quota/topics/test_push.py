"""The push settings of a topic (E17; fault row 19): accepted values, and refusals with their reasons."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.quota.topics import push
from evenlane.quota.topics.topic import TopicError, accept, complete, decode_accepted, encode, merge, parse_spec
from tests.support.topic_cases import LIMITS

URL = "https://example.com/hook"


def made(**parts):
    return complete(parse_spec(json.dumps({"qps": 5, "push": parts}).encode()), LIMITS).push


def refused(parts):
    with pytest.raises(TopicError) as caught:
        parse_spec(json.dumps({"qps": 5, "push": parts}).encode())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
    return caught.value


def test_missing_fields_have_defaults():
    whole = {"url": URL, "timeout": 10.0, "secret_ref": None, "headers": {}, "concurrency": None}
    assert whole == made(url=URL)
    assert list(whole) == list(made(headers={}, url=URL))


def test_accepted_push_survives_encoding():
    """Nodes read it as JSON under `accepted/`."""
    given = {"url": URL, "timeout": 2, "secret_ref": "acme.key", "headers": {"A": "b"}, "concurrency": 3}
    topic = complete(parse_spec(json.dumps({"qps": 5, "push": given}).encode()), LIMITS)
    assert given == topic.push
    assert topic == decode_accepted(encode(accept(topic, 1, None))).topic


def test_defaults_are_not_shared_between_topics():
    made(url=URL)["headers"]["X"] = "y"
    assert {} == made(url=URL)["headers"]


def test_change_replaces_the_push_as_a_whole():
    old = merge(None, {"qps": 5, "push": {"url": URL, "timeout": 3}})
    assert 10.0 == json.loads(merge(old, {"push": {"url": URL}}))["push"]["timeout"]
    assert "push" not in json.loads(merge(old, {"push": None}))


@pytest.mark.parametrize(
    "url",
    [
        "http://a", "HTTPS://A.example/", "https://a.example:8443/x/y?z=%20&q=[1]", "http://127.0.0.1:8080",
        "http://[::1]:80/", "http://[::ffff:10.0.0.1]/", "http://under_score.example./", "http://xn--bcher-kva.example",
        "http://a/" + "x" * 2_039,
    ],
)  # fmt: skip
def test_url_is_kept_unchanged(url):
    assert url == made(url=url)["url"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (None, "must be a string"), (5, "must be a string"), (["http://a"], "must be a string"), ("", "in ASCII"),
        ("x", "must begin with http"), ("//a", "must begin with http"), ("a.example/x", "must begin with http"),
        ("ftp://a", "must begin with http"), ("file:///etc/passwd", "must begin with http"),
        ("http:a", "must begin with http"), ("javascript:alert(1)", "must begin with http"),
        ("http://", "must have a host"), ("http:///a", "must have a host"), ("http://?a", "must have a host"),
        ("http://a..b", "must have a host"), ("http://-a", "must have a host"), ("http://a:", "must have a host"),
        ("http://" + "a" * 64, "must have a host"), ("http://a%2eb/", "must have a host"),
        ("http://127.1/", "must have a host"), ("http://2130706433", "must have a host"),
        ("http://0x7F000001", "must have a host"), ("http://127.0.0.1./", "must have a host"),
        ("http://256.1.1.1", "must have a host"), ("http://a.1", "must have a host"),
        ("http://[::1%25eth0]/", "must have a host"), ("http://[::1", "valid host and port"),
        ("http://a:99999", "valid host and port"), ("http://a:b", "valid host and port"), ("http://a:0", "a port"),
        ("http://a#b", "no fragment"), ("http://a#", "no fragment"),
        ("http://user:hunter2@a", "no user or password"), ("http://@a", "no user or password"),
        (" http://a", "in ASCII"), ("http://a\r\nb", "in ASCII"), ("http://a\\b", "in ASCII"), ("http://ä", "in ASCII"),
        ("http://a/%zz", "in ASCII"), ("http://a/\x00", "in ASCII"), ("http://a/" + "x" * 2_040, "characters"),
    ],
)  # fmt: skip
def test_invalid_url_is_refused_with_its_reason(url, reason):
    error = refused({"url": url})
    assert "push.url" == error.field
    assert reason in error.reason


@pytest.mark.parametrize("url", ["ftp://user:hunter2@a", "http://user:hunter2@a b", "http://user:hunter2@a:b"])
def test_password_in_a_url_is_never_shown(url):
    assert "hunter2" not in str(refused({"url": url}))


@pytest.mark.parametrize(
    ("parts", "field", "reason"),
    [
        ({}, "push.url", "is missing"),
        ({"url": URL, "retries": 3}, "push.retries", "is unknown: the fields are url, timeout"),
        ({"url": URL, "timeout": 0}, "push.timeout", "must be a number from 0.01 to 3,600"),
        ({"url": URL, "timeout": True}, "push.timeout", "must be a number"),
        ({"url": URL, "timeout": None}, "push.timeout", "must be a number"),
        ({"url": URL, "concurrency": 0}, "push.concurrency", "must be a whole number from 1"),
        ({"url": URL, "concurrency": 1.5}, "push.concurrency", "must be a whole number"),
        ({"url": URL, "secret_ref": ""}, "push.secret_ref", "must be the name of a file"),
        ({"url": URL, "secret_ref": "../etc/passwd"}, "push.secret_ref", "must be the name of a file"),
        ({"url": URL, "secret_ref": "/etc/passwd"}, "push.secret_ref", "must be the name of a file"),
        ({"url": URL, "secret_ref": ".."}, "push.secret_ref", "must be the name of a file"),
        ({"url": URL, "secret_ref": "a\x00"}, "push.secret_ref", "must be the name of a file"),
        ({"url": URL, "headers": [["a", "b"]]}, "push.headers", "must be an object"),
        ({"url": URL, "headers": {"a b": "c"}}, "push.headers.a b", "is not a header name"),
        ({"url": URL, "headers": {"": "c"}}, "push.headers.", "is not a header name"),
        ({"url": URL, "headers": {"A": "b\r\nC: d"}}, "push.headers.A", "must be a single line"),
        ({"url": URL, "headers": {"A": "b "}}, "push.headers.A", "without blanks around it"),
        ({"url": URL, "headers": {"A": 5}}, "push.headers.A", "must be a single line"),
        ({"url": URL, "headers": {"A": "x" * 4_097}}, "push.headers.A", "up to 4,096"),
        ({"url": URL, "headers": {"A": "1", "a": "2"}}, "push.headers.a", "is given twice"),
        ({"url": URL, "headers": {f"A{n}": "1" for n in range(33)}}, "push.headers", "at most 32"),
    ],
)
def test_invalid_field_is_refused_with_its_reason(parts, field, reason):
    error = refused(parts)
    assert field == error.field
    assert reason in error.reason


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "connection",
        "Transfer-Encoding",
        "Content-Length",
        "TE",
        "Webhook-Signature",
        "Evenlane-Attempt",
        "Nats-X",
    ],
)
def test_reserved_header_is_refused(name):
    assert "can't be set" in refused({"url": URL, "headers": {name: "x"}}).reason


def test_value_of_a_header_is_never_shown():
    assert "hunter2" not in str(refused({"url": URL, "headers": {"Authorization": "hunter2\n"}}))


@given(st.text() | st.from_regex(r"https?://[ -~]*", fullmatch=True))
def test_any_url_is_kept_or_refused_in_one_sentence(text):
    try:
        kept, sentence = push.url("push.url", text), ""
    except TopicError as error:
        kept, sentence = text, str(error)
    assert text == kept
    assert sentence.isprintable()
    assert sentence or text.lower().startswith(("http://", "https://"))
