"""`evenlane backlog` on real servers."""

import asyncio
import json

import pytest

from evenlane.engine.admin.backlog.purge import purge
from evenlane.engine.base.config.settings import load
from evenlane.engine.cli.main import run
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from tests.support.streams import all_stored

pytestmark = pytest.mark.real


@pytest.fixture
def run_json(env, capsys):
    """Runs `evenlane backlog ... --json`; returns its document."""

    def command(*arguments: str) -> dict:
        capsys.readouterr()
        assert 0 == run(["backlog", *arguments, "--json"]), capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return command


def stored(servers, env):
    return asyncio.run(all_stored(servers.nats.url, env, 4))


def streams(servers, env):
    async def ask() -> list[str]:
        connection = Connection(NatsOptions((servers.nats.url,)), "test")
        await connection.open()
        try:
            kinds = ("lanes", "later", "dead", "settled", "busy")
            found = [await connection.api("STREAM.NAMES", {"subject": f"{kind}.{env}.>"}) for kind in kinds]
            return [name for answer in found for name in answer["streams"] or []]
        finally:
            await connection.close()

    return asyncio.run(ask())


def put(*arguments):
    assert 0 == run(["put", *arguments])


def write(tmp_path, lines):
    """Write puts of acme, one per line."""
    text = "".join(json.dumps({"project": "acme", "body": "x"} | line) + "\n" for line in lines)
    (tmp_path / "in.jsonl").write_text(text)


def part(result, priority="mid"):
    return next(each for each in result["priorities"] if each["priority"] == priority)


# ---- wrong use


WRONG = r"""
backlog peek a.b
backlog peek acme --limit 0
backlog peek acme --limit many
backlog peek acme --priority urgent
backlog peek nobody
backlog purge nobody --yes
backlog purge acme
backlog purge acme --yes --priority a.b
backlog cancel acme
backlog cancel acme 'a b'
backlog cancel acme nothing
backlog cancel nobody x
backlog peek acme --etcd 127.0.0.1:1
"""


def test_error_is_one_sentence_with_its_exit_code(env, transcript):
    transcript.fail(WRONG)
    transcript.check()


def test_unconfirmed_purge_drops_nothing(env, servers, capsys, monkeypatch):
    """Another name fails the command; it is not wrong use, which is found before the question."""
    put("acme", "a")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda text, *, err: "yes")
    assert 1 == run(["backlog", "purge", "acme"])
    assert "that is not 'acme': nothing was dropped" in capsys.readouterr().err
    assert 1 == len(stored(servers, env))
    monkeypatch.setattr("typer.prompt", lambda text, *, err: "acme")
    assert 0 == run(["backlog", "purge", "acme"])
    assert capsys.readouterr().out.endswith("dropped 1 message of acme\n")


def test_peek_creates_no_stream(env, servers, run_json):
    assert {0} == {part["waiting"] + part["delayed"] for part in run_json("peek", "acme")["priorities"]}
    assert [] == streams(servers, env)


# ---- peek


def test_peek_shows_waiting_messages_in_order_by_priority(env, run_json):
    put("acme", "first", "--id", "1", "--key", "k", "--ttl", "1h")
    put("acme", "second", "--id", "2")
    put("acme", "urgent", "--priority", "high", "--id", "3")
    put("acme", "tomorrow", "--id", "4", "--delay", "1d")
    put("acme", "in an hour", "--id", "5", "--delay", "1h")
    seen = run_json("peek", "acme")
    assert ["high", "mid", "low"] == [each["priority"] for each in seen["priorities"]]
    assert [(1, 0), (2, 2), (0, 0)] == [(each["waiting"], each["delayed"]) for each in seen["priorities"]]
    mid = part(seen)["messages"]
    assert ["1", "2", "5", "4"] == [message["id"] for message in mid]
    first, soon = mid[0], mid[2]
    assert ("k", 1, 5, "first", None) == tuple(
        first[name] for name in ("key", "attempt", "size", "body_start", "due_at")
    )
    assert first["stream"].startswith(f"LANES_{env}_")
    assert first["put_at"] < first["expires_at"] < soon["due_at"]
    assert ["1"] == [message["id"] for message in part(run_json("peek", "acme", "--limit", "1"))["messages"]]
    assert ["high"] == [each["priority"] for each in run_json("peek", "acme", "--priority", "high")["priorities"]]


def test_peek_prints_a_table(env, capsys, transcript):
    put("acme", "line\nbreak", "--id", "1", "--key", "k")
    put("acme", "later", "--id", "2", "--key", "k", "--delay", "1h")
    capsys.readouterr()
    transcript("backlog", "peek", "acme")
    transcript.check()


def test_peek_shows_body_as_text_if_possible(env, run_json, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"project": "acme", "body_base64": "/w=="}\n')
    assert 0 == run(["put", "--file", "in.jsonl"])
    put("acme", "x" * 79 + "\N{PILE OF POO}" * 9)
    no_text, cut = part(run_json("peek", "acme"))["messages"]
    assert ("/w==", "x" * 79) == (no_text["body_start_base64"], cut["body_start"])


# ---- the limit

LIMITED = pytest.mark.parametrize("env", [{"MAX_QUEUE_BACKLOG": "3", "PARTITIONS": "1"}], indirect=True)


@LIMITED
def test_put_above_the_limit_is_refused_with_queue_and_limit(env, servers, capsys):
    for body in "abc":
        put("acme", body, "--group", "0")
    capsys.readouterr()
    assert 1 == run(["put", "acme", "d", "--group", "0"])
    sentence = "the message for acme is not stored: the queue of its group 0, priority mid, is full, with 3 messages"
    assert sentence in capsys.readouterr().err
    put("acme", "e", "--group", "0", "--priority", "low")
    put("acme", "later", "--group", "0", "--delay", "1h")
    assert 5 == len(stored(servers, env))


@LIMITED
def test_lines_above_the_limit_are_refused_one_by_one(env, servers, capsys, tmp_path):
    lines = [{"group": 0, "priority": "low" if n % 2 else "high"} for n in range(10)]
    write(tmp_path, lines)
    capsys.readouterr()
    assert 1 == run(["put", "--file", "in.jsonl", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (6, [7, 8, 9, 10]) == (document["put"], [each["line"] for each in document["refused"]])
    assert all(
        "is full, with 3 messages that max_queue_backlog allows" in each["error"] for each in document["refused"]
    )
    assert 6 == len(stored(servers, env))


# ---- purge and cancel without owners


def fill(tmp_path, lines):
    write(tmp_path, lines)
    put("--file", "in.jsonl")


def test_purge_without_a_node_drops_all_of_one_project(env, servers, run_json, tmp_path):
    """L: 20,000 messages, of which a quarter is delayed; messages of another project stay. It reports progress."""
    assert 0 == run(["topics", "set", "other", "--qps", "10"])
    fill(tmp_path, [{"delay": 86_400} if n % 4 == 0 else {} for n in range(20_000)])
    put("other", "stays")
    put("other", "stays", "--delay", "1d")
    progress: list[float] = []
    done = asyncio.run(purge(load({}).settings, "acme", None, progress.append))
    assert (20_000, True) == (progress[-1], sorted(progress) == progress)
    assert len(progress) > 4
    assert (20_000, 0, 20_000, 0) == tuple(done[name] for name in ("dropped", "by_nodes", "by_command", "in_flight"))
    assert ["other", "other"] == [message.subject.split(".")[3] for message in stored(servers, env)]
    assert 0 == run_json("purge", "acme", "--yes")["dropped"]


def test_purge_of_one_priority_keeps_the_others(env, run_json):
    for priority in ("high", "mid", "low"):
        put("acme", "x", "--priority", priority)
        put("acme", "x", "--priority", priority, "--delay", "1d")
    assert 2 == run_json("purge", "acme", "--priority", "mid", "--yes")["dropped"]
    left = {each["priority"]: each["waiting"] + each["delayed"] for each in run_json("peek", "acme")["priorities"]}
    assert {"high": 2, "mid": 0, "low": 2} == left


def test_delayed_message_is_cancelled_by_id(env, run_json, capsys):
    put("acme", "x", "--id", "order-1", "--delay", "30d")
    put("acme", "x", "--id", "order-11", "--delay", "30d")
    done = run_json("cancel", "acme", "order-1")
    assert (True, 1) == (done["cancelled"], done["messages"])
    assert ["order-11"] == [message["id"] for message in part(run_json("peek", "acme"))["messages"]]
    assert 1 == run(["backlog", "cancel", "acme", "order-1"])
    assert "message 'order-1' of acme isn't waiting" in capsys.readouterr().err
