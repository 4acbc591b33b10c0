"""`evenlane put` on real servers."""

import asyncio
import io
import json
import signal
import subprocess
import sys
import time

import pytest

from evenlane.engine.cli.main import run
from evenlane.engine.core.wire import headers as h
from tests.support.streams import all_stored
from tests.support.until import until

pytestmark = pytest.mark.real

COMMAND = [sys.executable, "-c", "from evenlane.engine.cli.main import main; main()"]


def stored(servers, env):
    return asyncio.run(all_stored(servers.nats.url, env, 4))


def test_put_prints_where_the_message_is_stored(env, servers, capsys):
    assert 0 == run(["put", "acme", "hello", "--priority", "high", "--key", "k", "--header", "X=a=b"])
    [message] = stored(servers, env)
    out, err = capsys.readouterr()
    partition = message.subject.split(".")[2]
    assert (f"put acme 1 -> LANES_{env}_{partition}:1\n", "") == (out, err)
    assert (b"hello", "high", "k") == (
        message.body,
        message.subject.split(".")[5],
        h.value(message.headers, h.KEY),
    )
    assert {"X": "a=b"} == h.decode_user(message.headers)


def test_put_reports_duplicates(env, servers, capsys):
    assert 0 == run(["put", "acme", "a", "--id", "7", "--json"])
    assert 0 == run(["put", "acme", "a", "--id", "7", "--json"])
    decoder, out = json.JSONDecoder(), capsys.readouterr().out
    first, end = decoder.raw_decode(out)
    assert {"put": 1, "duplicates": 0, "refused": []} == first
    assert {"put": 0, "duplicates": 1, "refused": []} == json.loads(out[end:])
    assert 0 == run(["put", "acme", "a", "--id", "7"])
    assert capsys.readouterr().out.startswith(f"duplicate acme -> LANES_{env}_")


def test_body_is_read_from_stdin_unchanged(env, servers, evenlane, monkeypatch):
    """K1: any bytes, also for a delayed message."""
    body = bytes(range(256))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
    code, out, _ = evenlane("put", "acme", "--delay", "10m")
    assert (0, True) == (code, out.startswith("put acme 1 -> LATER_"))
    [message] = stored(servers, env)
    assert (body, 6) == (message.body, message.subject.count("."))


WRONG = r"""
put acme x --delay -5s
put acme x --delay 5s --due 2030-01-01T00:00:00Z
put acme x --due tomorrow
put acme x --due 9999-01-01T00:00:00Z
put acme x --delay nan
put acme x --ttl 0
put acme x --group 99
put acme x --priority urgent
put acme x --header novalue
put acme x --header Nats-Rollup=all
put a.b x
put '*' x
put nobody x
put
put acme x --file f
put --file not-there.jsonl
put --file /
put acme x --admission 1
put --file f --admission 0
put --file f --admission nan
put --file f --admission much
put acme x --nats nats://127.0.0.1:1
put --file /dev/null --etcd 127.0.0.1:1
"""


def test_error_is_one_sentence_with_its_exit_code(env, transcript):
    """Fault 20: names that no subject can hold are refused in one sentence."""
    transcript.fail(WRONG)
    transcript.check()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["x" * 2_000_000], "the server takes at most 1,048,576"),
        (["x", "--due", "2020-01-01T00:00:00Z"], "due 2020-01-01T00:00:00Z is "),
    ],
)
def test_unacceptable_message_is_one_sentence(env, evenlane, arguments, sentence):
    code, out, err = evenlane("put", "acme", *arguments)
    assert (2, "", 1) == (code, out, err.count("\n"))
    assert sentence in err


LINES = [
    ('{"project": "acme", "body": "one", "id": "1"}', None),
    ("", None),
    ("   ", None),
    ('{"project": "acme", "body_base64": "AHR3bw=="}', None),
    ("{broken", "it isn't JSON"),
    ('{"project": "acme"}', "it needs either `body`, a string, or `body_base64`"),
    ('{"project": "acme", "body": "x", "body_base64": "eA=="}', "it needs either"),
    ('{"project": "acme", "body": "x", "body_base64": null, "prio": 1}', "it has the unknown field `prio`"),
    ('{"body": "x"}', "it lacks the field `project`"),
    ('{"project": "acme", "body": 1}', "expected `str`, got `int` in `body`"),
    ('{"project": "acme", "body_base64": "?"}', "`body_base64` is not base64"),
    ('{"project": "acme", "body": "\\ud800"}', "isn't JSON"),
    ('{"project": "nobody", "body": "x"}', "has no topic"),
    ('{"project": "a.b", "body": "x"}', "project 'a.b' is not valid"),
    ('{"project": "acme", "body": "x", "delay": -1}', "`delay` -1.0 is not a duration"),
    ('{"project": "acme", "body": "x", "due": "soon"}', "`due` 'soon' is not an RFC 3339 time"),
    ('{"project": "acme", "body": "x", "due": "2020-01-01T00:00:00Z"}', "due 2020-01-01T00:00:00Z is "),
    ('{"project": "acme", "body": "x", "due": "9999-01-01T00:00:00Z"}', "`due` '9999-01-01T00:00:00Z' is not a time"),
    ('\ufeff{"project": "acme", "body": "x"}', "it begins with a byte order mark (BOM): save it as UTF-8 without one"),
    ('{"project": "acme", "body": "x", "due": 1e400}', "Number out of range in `due`"),
    ('{"project": "acme", "body": "x", "delay": NaN}', "it isn't JSON"),
    ('{"project": "acme", "body": "x", "delay": 5, "due": "2100-01-01T00:00:00Z"}', "delay and due are both given"),
    ('{"project": "acme", "body": "x", "headers": {"a": 1}}', "expected `str`, got `int` in `headers`"),
    ('{"project": "acme", "body": "x", "group": 1.5}', "expected `int`, got `float` in `group`"),
    ("[1, 2]", "it must be a JSON object, not `array`"),
    ('{"project": "acme", "body": "one again", "id": "1"}', None),
    ('{"project": "acme", "body": "three", "delay": 60, "ttl": "1h", "key": "k", "priority": "low"}', None),
    ('{"project": "acme", "body": "no line end"}', None),
]


def test_admission_limits_the_rate_of_a_file_without_refusals(env, servers, capsys, tmp_path):
    """K6: 30 messages at 0.1 x 400/s take at least 0.7 s on any machine."""
    (tmp_path / "f.jsonl").write_text('{"project": "acme", "body": "x"}\n' * 30)
    began = time.monotonic()
    assert 0 == run(["put", "--file", "f.jsonl", "--admission", "0.1"])
    assert time.monotonic() - began > 29 / 40
    assert "put 30, duplicates 0, refused 0\n" == capsys.readouterr().out
    assert 30 == len(stored(servers, env))


def test_invalid_lines_are_listed_and_others_are_put(env, servers, capsys, tmp_path):
    (tmp_path / "f.jsonl").write_text("\n".join(line for line, _ in LINES))
    assert 1 == run(["put", "--file", "f.jsonl", "--json"])
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert ("", 4, 1) == (err, document["put"], document["duplicates"])
    wrong = {number: sentence for number, (_, sentence) in enumerate(LINES, start=1) if sentence}
    assert list(wrong) == [refusal["line"] for refusal in document["refused"]]
    assert [] == [refusal for refusal in document["refused"] if wrong[refusal["line"]] not in refusal["error"]]
    expected = {b"one", b"\x00two", b"three", b"no line end"}
    assert expected == {message.body for message in stored(servers, env)}


def test_refusals_go_to_stderr_and_totals_to_stdout(env, evenlane, tmp_path):
    lines = b'{"project": "acme", "body": "x"}\r\n\xff\n{"project": "acme", "body": "x"}\n'
    (tmp_path / "f.jsonl").write_bytes(lines)
    code, out, err = evenlane("put", "--file", "f.jsonl")
    assert (1, "put 2, duplicates 0, refused 1\n") == (code, out)
    assert (True, 1) == (err.startswith("line 2: "), err.count("\n"))


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.full), (signal.SIGHUP, 129)],
)
def test_signal_ends_put_that_waits_for_stdin(env, servers, number, code):
    """F11: it reports the number of stored messages."""
    with subprocess.Popen([*COMMAND, "put", "--file", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as put:
        put.stdin.write(b'{"project": "acme", "body": "x"}\n')
        put.stdin.flush()
        asyncio.run(_until_one_is_stored(servers, env))
        put.send_signal(number)
        assert code == put.wait(60)
        assert b"evenlane: 1 message is stored, and those in transit" in put.stderr.read()


async def _until_one_is_stored(servers, env):
    async def is_stored():
        return len(await all_stored(servers.nats.url, env, 4)) == 1

    await until(is_stored)


MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.timeout(900)
def test_many_lines_need_little_memory(env, servers):
    """30,000 lines, 122 MB: they are never all in memory."""
    line = json.dumps({"project": "acme", "body": "x" * 4_000, "priority": "low", "key": "k1"}) + "\n"
    count = 30_000
    # An intermediate process: the kernel counts memory from before exec, which here would be that of pytest.
    measured = [sys.executable, "-c", MEASURE, *COMMAND, "put", "--file", "-", "--json"]
    with subprocess.Popen(measured, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as put:
        for _ in range(count // 1_000):
            put.stdin.write(line.encode() * 1_000)
        put.stdin.close()
        out, err = put.stdout.read(), put.stderr.read()
    assert ({"put": count, "duplicates": 0, "refused": []}, 0) == (json.loads(out), put.returncode)
    assert int(err.split()[-1]) < 150_000, "KB, of which 60,000 are the interpreter and its libraries"
