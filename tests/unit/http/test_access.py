"""Access control: reads on loopback need no token, changes always do."""

import json

import pytest

from evenlane.engine.base.config.settings import load
from evenlane.engine.errors import ConfigError
from evenlane.engine.http.app import app
from evenlane.engine.http.server.auth import AccessControl
from tests.support.http.serving import TOKEN, FakeNode, served

HERE, ELSEWHERE = ("127.0.0.1", 5), ("192.0.2.7", 5)
BEARER = {"authorization": f"Bearer {TOKEN}"}


async def ask(path, client=HERE, method="GET", token=lambda: TOKEN, node=None, **headers):
    """Return status, headers and body of the answer to a client with this address."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    named = {"host": "localhost:8080"} | headers
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items() if value is not None]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "headers": raw, "client": client,
        "server": ("127.0.0.1", 8080),
    }  # fmt: skip
    await app(node or FakeNode(), AccessControl(token))(scope, receive, send)
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], head, b"".join(each.get("body", b"") for each in sent[1:])


@pytest.mark.parametrize("client", [("127.0.0.1", 1), ("127.9.9.9", 1), ("::1", 1), ("::ffff:127.0.0.1", 1)])
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "127.0.0.1"])
async def test_loopback_reads_without_a_token(client, host):
    assert 200 == (await ask("/api/overview", client, host=host))[0]


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        (ELSEWHERE, {}),
        (None, {}),
        (("fe80::1%eth0", 1), {}),
        (("::ffff:192.0.2.7", 1), {}),
        (HERE, {"host": "evil.example"}),  # its name resolves to loopback
        (HERE, {"host": "localhost.evil.example"}),
        (HERE, {"host": "evil.example@127.0.0.1"}),
        (HERE, {"host": "127.0.0.1.evil.example:8080"}),
        (HERE, {"host": "127.0.0.1/evil.example"}),
        (HERE, {"host": "[::1"}),
        (HERE, {"host": "127.0.0.1:x"}),
        (HERE, {"host": ""}),
        (HERE, {"host": None}),
        (HERE, {"x_forwarded_for": "192.0.2.7"}),  # a proxy asks for another client
        (HERE, {"forwarded": "for=192.0.2.7"}),
    ],
)
async def test_reads_from_elsewhere_need_the_token(client, headers):
    for path in (
        "/",
        "/static/js/app.js",
        "/api/overview",
        "/api/events",
        "/api/why/a",
        "/api/dead/a",
        "/api/dead/a/1",
    ):
        status, head, body = await ask(path, client, **headers)
        assert 401 == status
        assert head["www-authenticate"].startswith("Basic ")
        assert "needs the token of this node" in json.loads(body)["error"]


async def test_token_permits_reads_from_elsewhere():
    """Programs send it as Bearer, and browsers, which can't, as a password."""
    assert 200 == (await ask("/api/overview", ELSEWHERE, **BEARER))[0]
    password = "Basic YW55Ym9keTphIHRva2VuIHRoYXQgbm9ib2R5IGd1ZXNzZXM="
    assert 200 == (await ask("/", ELSEWHERE, authorization=password))[0]
    for wrong in ("Bearer nope", "Bearer", "Basic !", "Basic bm9wZQ==", f"Digest {TOKEN}", f"Bearer {TOKEN}x"):
        assert 401 == (await ask("/api/overview", ELSEWHERE, authorization=wrong))[0]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_foreign_page_in_a_local_browser_needs_the_bearer_token(site):
    """It could read nothing, but would take the places of viewers. A browser's password isn't sufficient."""
    password = {"authorization": "Basic YW55Ym9keTphIHRva2VuIHRoYXQgbm9ib2R5IGd1ZXNzZXM="}
    for path, mode in (("/api/overview", "navigate"), ("/api/events", "no-cors"), ("/", "no-cors"), ("/", "cors")):
        for given in ({}, password):
            assert 401 == (await ask(path, sec_fetch_site=site, sec_fetch_mode=mode, **given))[0]
    assert 200 == (await ask("/api/overview", sec_fetch_site=site, sec_fetch_mode="cors", **BEARER))[0]


async def test_own_page_and_links_to_it_are_permitted():
    assert 200 == (await ask("/", sec_fetch_site="cross-site", sec_fetch_mode="navigate"))[0]
    assert 200 == (await ask("/", sec_fetch_site="none", sec_fetch_mode="navigate"))[0]
    assert 200 == (await ask("/api/overview", sec_fetch_site="same-origin", sec_fetch_mode="cors"))[0]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_and_metrics_need_no_token(path):
    assert 200 == (await ask(path, ELSEWHERE, token=lambda: None, host="evil.example"))[0]


CHANGES = ["/api/topics/acme/pause", "/api/topics/acme/resume", "/api/dead/acme/replay"]


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer nope"},
        # a browser sends a password by itself, whichever page causes the request
        {"authorization": "Basic YW55Ym9keTphIHRva2VuIHRoYXQgbm9ib2R5IGd1ZXNzZXM="},
    ],
)
async def test_changes_on_loopback_need_the_token(path, headers):
    node = FakeNode()
    status, head, body = await ask(path, method="POST", node=node, **headers)
    assert (401, [], 'Bearer realm="Evenlane"') == (status, node.changed, head["www-authenticate"])
    assert "changing something needs the token" in json.loads(body)["error"]


async def test_node_without_a_token_refuses_changes_and_names_the_setting():
    for path in CHANGES:
        status, _, body = await ask(path, method="POST", token=lambda: None, **BEARER)
        assert (403, True) == (status, "EVENLANE_HTTP_TOKEN_FILE" in json.loads(body)["error"])
    status, _, body = await ask("/", ELSEWHERE, token=lambda: None)
    assert (403, True) == (status, "the setting http_token_file" in json.loads(body)["error"])
    assert 200 == (await ask("/", token=lambda: None))[0]


async def test_unreadable_token_permits_nothing():
    def gone():
        raise ConfigError("http_token_file: /x can't be read as text")

    status, _, body = await ask("/api/topics/acme/pause", method="POST", token=gone, **BEARER)
    assert (403, True) == (status, "can't be read" in json.loads(body)["error"])


async def test_changes_reach_the_node():
    async with served() as (get, node):
        status, _, text = await get("/api/topics/acme/pause", "POST", **BEARER)
        assert (200, {"project": "acme", "accepted": True}) == (status, json.loads(text))
        assert 200 == (await get("/api/topics/acme/resume", "POST", **BEARER))[0]
        assert 200 == (await get("/api/dead/acme/replay", "POST", b'{"seq": 7}', **BEARER))[0]
        node.running = True
        assert 202 == (await get("/api/dead/acme/replay", "POST", b'{"all": true}', **BEARER))[0]
        assert [("paused", "acme"), ("active", "acme"), ("replay", "acme", 7), ("replay", "acme", None)] == node.changed


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"seq": 1, "all": true}', b'{"seq": 0}', b'{"seq": "1"}', b'{"seq": 1.5}', b'{"all": false}',
     b'{"sequence": 1}', b'{"seq": 99999999999999999999}', b"\xff", b'{"all": true, "x": "%s"}' % (b"x" * 5000)],
)  # fmt: skip
async def test_replay_must_name_one_or_all(body):
    async with served() as (get, node):
        status, _, text = await get("/api/dead/acme/replay", "POST", body, **BEARER)
        assert (400, []) == (status, node.changed)
        assert "\n" not in json.loads(text)["error"]


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (b"", "is empty: it must hold the token"),
        (b"short", "must hold at least 16 characters of ASCII"),
        ("ü".encode() * 20, "must hold at least 16 characters of ASCII"),
        (b"two lines of it\nand another", "must hold at least 16 characters of ASCII"),
        (b"\xff" * 20, "can't be read as text"),
    ],
)
def test_invalid_token_file_raises(tmp_path, written, sentence):
    path = tmp_path / "token"
    path.write_bytes(written)
    with pytest.raises(ConfigError, match=f"http_token_file: {path} {sentence}"):
        load({"http_token_file": str(path)}, environ={}).settings.http_token()


def test_token_is_read_from_its_file(tmp_path):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert load({"http_token_file": str(tmp_path / "token")}, environ={}).settings.http_token() == TOKEN
    assert load({}, environ={}).settings.http_token() is None
