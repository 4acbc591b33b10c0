"""Tokens with scopes: each route needs one (S3)."""

import json
import tomllib
from hashlib import sha256

import pytest
from starlette.routing import Route
from structlog.testing import capture_logs

from evenlane.engine.cli.main import run
from evenlane.engine.errors import ConfigError
from evenlane.engine.http.app import app
from evenlane.engine.http.server.auth import AccessControl
from evenlane.engine.http.server.guarded_route import GuardedRoute
from evenlane.engine.http.server.scopes import Grant, Scope
from evenlane.engine.http.server.token_file import TokenFile
from tests.support.http.serving import TOKEN, FakeNode

OPEN = {"/healthz", "/readyz", "/metrics"}
ELSEWHERE = ("192.0.2.7", 5)
EVERY_ROUTE = [each for each in app(FakeNode(), AccessControl(lambda: None)).routes if isinstance(each, Route)]
GUARDED = [
    (each.path, method, need)
    for each in EVERY_ROUTE
    if isinstance(each, GuardedRoute)
    for method, need in each.needs.items()
]


def grant(name, *scopes, projects=None):
    """The token is its name."""
    return Grant(name, sha256(name.encode()).digest(), frozenset(scopes), projects)


GRANTS = [
    *(grant(scope.value, scope) for scope in Scope),
    *(grant(f"not-{scope.value}", *({*Scope} - {scope})) for scope in Scope),
    grant("acme", *Scope, projects=("acme",)),
    grant("others", *Scope, projects=("b-*", "*-c", "x*y")),
]


async def ask(path, method, token, grants=GRANTS, single=None):
    """Return status and error of the answer to a client on another machine."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"localhost"), *([(b"authorization", f"Bearer {token}".encode())] if token else [])]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"wrong=1", "headers": headers, "client": ELSEWHERE,
        "server": ("127.0.0.1", 8080),
    }  # fmt: skip
    access = AccessControl(lambda: single, grants if callable(grants) else lambda: grants)
    await app(FakeNode(), access)(scope, receive, send)
    body = b"".join(each.get("body", b"") for each in sent[1:])
    try:
        return sent[0]["status"], json.loads(body).get("error", "")
    except ValueError:
        return sent[0]["status"], ""


def filled(path, project="acme"):
    return path.replace("{project}", project).replace("{seq}", "1").replace("{path:path}", "js/app.js")


def test_every_route_but_probes_and_metrics_needs_a_scope():
    """S3: a new route without one fails here, and one with a scope is in the tests below."""
    assert OPEN == {each.path for each in EVERY_ROUTE if not isinstance(each, GuardedRoute)}
    assert all({*each.needs} == each.methods - {"HEAD"} for each in EVERY_ROUTE if isinstance(each, GuardedRoute))
    assert len(GUARDED) > 15


@pytest.mark.parametrize(("path", "method", "need"), GUARDED, ids=str)
async def test_each_route_is_for_tokens_with_its_scope(path, method, need):
    """S3: 401 without a token or with another one, 403 with the name of the scope that is missing."""
    scope, filled_path = need.scope.value, filled(path)
    assert 401 == (await ask(filled_path, method, None))[0]
    assert 401 == (await ask(filled_path, method, "guessed"))[0]
    status, error = await ask(filled_path, method, f"not-{scope}")
    assert (403, True) == (status, error.startswith(f"the token 'not-{scope}' has no scope {scope!r}, only "))
    assert (await ask(filled_path, method, scope))[0] not in {401, 403}
    assert (await ask(filled_path, method, TOKEN, single=TOKEN))[0] not in {401, 403}, "it has all scopes"


@pytest.mark.parametrize(("path", "method", "need"), GUARDED, ids=str)
async def test_token_of_one_project_reaches_no_other(path, method, need):
    """S3: nor what shows all projects."""
    if not need.names_projects:
        assert "{project}" not in path
        assert (await ask(filled(path), method, "acme"))[0] not in {401, 403}
    elif "{project}" in path:
        assert (await ask(filled(path), method, "acme"))[0] not in {401, 403}
        for other in ("acme2", "acm", "ACME", "acme%00"):
            status, error = await ask(filled(path, other), method, "acme")
            assert (403, f"the token 'acme' is not for project {other!r}, only for acme") == (status, error)
    else:
        expected = (403, "the token 'acme' is only for projects acme, and this is about all projects")
        assert expected == await ask(path, method, "acme")


@pytest.mark.parametrize(
    ("project", "expected"),
    [
        ("b-1", True),
        ("b-", True),
        ("b", False),
        ("a-c", True),
        ("-c", True),
        ("xy", True),
        ("x1y", True),
        ("x1yz", False),
    ],
)
async def test_patterns(project, expected):
    assert expected == ((await ask(f"/api/why/{project}", "GET", "others"))[0] != 403)


def written(tmp_path, text):
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    return path


def entry(name, secret="s", more='scopes = ["read"]'):
    return f'[{name}]\nsha256 = "{sha256(secret.encode()).hexdigest()}"\n{more}\n'


async def test_file_is_read_again_when_it_has_changed(tmp_path):
    """S3: a token that is taken out counts no more, and nor does one of a file that is gone."""
    path = written(tmp_path, entry("a", "first"))
    tokens = TokenFile(path)
    assert 400 == (await ask("/api/overview", "GET", "first", tokens.grants))[0], "the wrong parameter is read"
    written(tmp_path, entry("a", "second") + entry("b", "third"))
    assert 401 == (await ask("/api/overview", "GET", "first", tokens.grants))[0]
    assert 400 == (await ask("/api/overview", "GET", "third", tokens.grants))[0]
    path.unlink()
    status, error = await ask("/api/overview", "GET", "third", tokens.grants)
    assert (403, True) == (status, "tokens.toml can't be read: No such file or directory" in error)


async def test_mistake_in_a_changed_file_locks_out_nobody(tmp_path):
    """S3: the last valid file counts, and one line of the log says what is wrong with the new one."""
    tokens = TokenFile(written(tmp_path, entry("dash", "first")))
    assert 400 == (await ask("/api/overview", "GET", "first", tokens.grants))[0]
    path = written(tmp_path, entry("dash", "first") + entry("dash", "second"))
    with capture_logs() as lines:
        for _ in range(3):
            assert 400 == (await ask("/api/overview", "GET", "first", tokens.grants))[0]
        assert 401 == (await ask("/api/overview", "GET", "second", tokens.grants))[0]
    reason = f"http_tokens_file: {path} is not valid TOML: [dash] is there twice (at line 4, column 6)"
    warning = {"event": "the file of tokens is not valid: the last valid one counts", "log_level": "warning"}
    assert [warning | {"reason": reason}] == lines
    written(tmp_path, entry("other", "third"))
    assert [401, 400] == [(await ask("/api/overview", "GET", each, tokens.grants))[0] for each in ("first", "third")]


def test_file_that_is_not_valid_at_the_start_is_refused(tmp_path):
    """S3: each time, as there is no valid one before it."""
    tokens = TokenFile(written(tmp_path, "broken"))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"tokens\.toml is not valid TOML: "):
            tokens.grants()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a = 1", "token 'a' in .* is not valid: Expected `object`, got `int`"),
        ('[a]\nscopes = ["read"]', "token 'a' in .* is not valid: .*missing required field `sha256`"),
        ('[a]\nsha256 = "12"\nscopes = ["read"]', "sha256 must be 64 lower-case hexadecimal digits"),
        (entry("a", more='scopes = ["all"]'), "token 'a' in .* is not valid: Invalid enum value 'all'"),
        (entry("a", more="scopes = []"), "token 'a' in .* has no scopes: they are read, put, change"),
        (
            entry("a", more='scopes = ["put"]\nprojects = ["a.b"]'),
            "'a.b' is not a project, nor a pattern such as 'shop-",
        ),
        (entry("a", more='scopes = ["put"]\nprojects = []'), "is for no projects: leave `projects` out for all"),
        (entry("a", more='scopes = ["put"]\nproject = "a"'), "unknown field `project`"),
    ],
)
def test_invalid_file_is_one_sentence(tmp_path, text, error):
    with pytest.raises(ConfigError, match=f"^http_tokens_file: .*{error}"):
        TokenFile(written(tmp_path, text)).grants()


def test_command_makes_an_entry_for_a_new_token(tmp_path, capsys):
    """S3: it prints a hash; the token itself is shown once."""
    assert 0 == run(["token", "shop", "--scope", "put", "--scope", "read", "--project", "shop-*"])
    out, err = capsys.readouterr()
    secret = err.strip().rpartition(" ")[2]
    assert secret not in out
    expected = {"sha256": sha256(secret.encode()).hexdigest(), "scopes": ["put", "read"], "projects": ["shop-*"]}
    assert {"shop": expected} == tomllib.loads(out)
    [made] = TokenFile(written(tmp_path, out)).grants()
    assert (frozenset({Scope.PUT, Scope.READ}), ("shop-*",)) == (made.scopes, made.projects)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["shop"], "--scope is missing"),
        (["shop", "--scope", "x"], "'x' is not a scope"),
        (["a b", "--scope", "put"], "not valid"),
        (["a", "--scope", "put", "--project", "b", "--project", "a b"], "--project: 'a b' is not a project, nor a"),
        (["a", "--scope", "put", "--project", ""], "--project: '' is not a project, nor a pattern such as 'shop-*'"),
    ],
)
def test_wrong_arguments_of_the_command_are_one_sentence(arguments, text, capsys):
    assert 2 == run(["token", *arguments])
    assert text in capsys.readouterr().err
