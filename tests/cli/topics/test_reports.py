"""What `evenlane topics` says of what somebody else wrote into etcd, and of what can't be done, on a real etcd."""

import asyncio
import io
import json
import sys
from functools import partial

import pytest

from evenlane.ring.coordination.etcd.client import EtcdCoordination

pytestmark = pytest.mark.real


@pytest.fixture
def topics(on_etcd):
    """Runs `evenlane topics ...`: (exit code, stdout, stderr)."""
    return partial(on_etcd, "topics")


@pytest.fixture
def by_hand(etcd, own_env):
    """Puts a value under an environment's key, or deletes it (None)."""

    async def written(kind, project, raw):
        client = EtcdCoordination([etcd.endpoint])
        key = f"/evenlane/{own_env}/{kind}/{project}"
        await (client.delete(key) if raw is None else client.put(key, raw))
        await client.close()

    return lambda kind, project, raw: asyncio.run(written(kind, project, raw))


@pytest.fixture
def piped(monkeypatch):
    """What is on stdin."""
    return lambda raw: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def listed(topics):
    return {line.split()[0]: line for line in topics("list")[1].splitlines()}


class TestWrittenByHand:
    def test_a_wish_under_a_bad_name(self, topics, by_hand):
        """Fault row 20."""
        by_hand("topics", "x\x1b[2Jy", b'{"qps": 5}')
        _, out, err = topics("list")
        assert "'x\\x1b[2Jy'" in out
        assert "no: project 'x\\x1b[2Jy' is not valid: 1 to 64 letters" in out
        assert "note: 1 wish is refused" in err

    def test_a_bad_wish_is_shown_as_it_was_written(self, topics, by_hand):
        """Fault row 19."""
        by_hand("topics", "acme", b'{"qps": -1, "qsp": 7}')
        by_hand("topics", "text", b"qps: 5")
        assert {"qps": -1, "qsp": 7} == json.loads(topics("get", "acme", "--json")[1])["wish"]
        rows = [line.split() for line in topics("get", "acme")[1].splitlines()]
        assert [["qps", "-", "-1"], ["qsp", "-", "7"]] == rows[1:3]
        assert ["acme", "-1"] == listed(topics)["acme"].split()[:2]
        assert "qps: 5" == json.loads(topics("get", "text", "--json")[1])["wish"]
        assert ["(no", "object)", "-", "qps:", "5"] in [line.split() for line in topics("get", "text")[1].splitlines()]

    def test_beside_what_is_in_force(self, topics, by_hand):
        topics("set", "acme", "--qps", "100")
        by_hand("topics", "acme", b'{"qps": -1, "qsp": 7}')
        rows = [line.split() for line in topics("get", "acme")[1].splitlines()]
        assert ["qps", "100", "-1"] in rows
        assert ["qsp", "-", "7"] in rows

    def test_who_mends_it_changes_what_is_in_force_and_is_told(self, topics, by_hand):
        topics("set", "acme", "--qps", "100", "--concurrency", "5")
        by_hand("topics", "acme", b'{"qps": -1}')
        code, out, err = topics("set", "acme", "--qps", "200", "--json")
        assert (0, {"qps": 200.0, "concurrency": 5}) == (code, json.loads(out)["wish"])
        assert err.startswith("note: the wish of topic acme was refused (qps must be a number from 0.01")
        assert err.endswith("nothing of it is left: what is in force was changed instead\n")

    def test_what_was_accepted_and_cannot_be_read(self, topics, by_hand, own_env):
        topics("set", "acme", "--qps", "100")
        by_hand("accepted", "acme", b"rubbish")
        assert "no: what was accepted can't be read (it is not JSON" in listed(topics)["acme"]
        assert listed(topics)["acme"].endswith("and the leader has not yet written it anew")
        assert "it is not JSON" in json.loads(topics("get", "acme", "--json")[1])["damage"]
        by_hand("topics", "acme", None)
        assert "and there is no wish to make it from" in listed(topics)["acme"]
        assert f": `evenlane topics set acme --qps 100 --env {own_env}` makes a new one\n" in topics("get", "acme")[2]
        assert (1, "") == topics("delete", "acme")[:2]
        assert 0 == topics("set", "acme", "--qps", "7")[0]


def test_commands_that_sentences_name_have_the_environment(topics, own_env):
    topics("set", "acme", "--qps", "100")
    out = topics("delete", "acme")[1]
    assert f"`evenlane topics drain acme --env {own_env}` has it handled" in out
    assert f"`evenlane backlog purge acme --env {own_env}` drops it" in out
    code, out, err = topics("delete", "acme")
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert "topic acme was deleted already: puts are refused, and what waits is kept and paused" in err
    assert f"`evenlane topics drain acme --env {own_env}`" in err


def test_what_no_leader_takes_is_told_with_the_command_that_looks(topics, by_hand, own_env):
    by_hand("topics", "acme", b'{"qps": 5}')
    assert "no: the leader has not yet taken it" in listed(topics)["acme"]
    assert f"`evenlane topics get acme --env {own_env}` tells when it has" in topics("get", "acme")[2]


WRONG = r"""
topics set acme --qps 1 --if-revision -1 --etcd 127.0.0.1:1
topics delete acme --if-revision -7 --etcd 127.0.0.1:1
topics pause acme --by '' --etcd 127.0.0.1:1
"""


def test_what_is_wrong_can_be_told_without_etcd(own_env, transcript):
    transcript.fail(WRONG)
    transcript.check()


@pytest.mark.parametrize(
    ("command", "author", "sentence"),
    [
        ("set acme --qps 1", "x" * 5_000, "--by must have 1 to 200 characters, not 5,000"),
        ("apply none.toml", "x" * 201, "--by must have 1 to 200 characters, not 201"),
        ("delete acme", "a\nb", "--by must be printable text in one line"),
    ],
)
def test_a_wrong_author_can_be_told_without_etcd(topics, command, author, sentence):
    code, out, err = topics(*command.split(), "--by", author, "--etcd", "127.0.0.1:1")
    assert (2, "", 1) == (code, out, err.count("\n"))
    assert sentence in err


class TestApply:
    def test_of_very_many_the_first_are_told(self, topics, tmp_path):
        (tmp_path / "t.json").write_text(json.dumps({f"p{n}": {"qps": -1} for n in range(120)}))
        lines = topics("apply", "t.json", "--json")[2].splitlines()
        assert ("and 20 more", "evenlane: t.json: 120 topics are wrong: nothing was written") == (*lines[-2:],)
        assert 102 == len(lines)

    @pytest.mark.parametrize("raw", [b'  {"acme": {"qps": 100}}', b"[acme]\nqps = 100\n"])
    def test_from_stdin_in_json_and_in_toml(self, topics, piped, raw):
        piped(raw)
        assert (0, "applied 1, accepted 1") == ((done := topics("apply", "-"))[0], done[1].splitlines()[-1])
        assert {"qps": 100.0} == json.loads(topics("get", "acme", "--json")[1])["wish"]

    @pytest.mark.parametrize(
        ("raw", "sentence"),
        [
            (b"{", "stdin is not JSON: "),
            (b"[[", "stdin is not TOML in UTF-8: "),
            (b'\xef\xbb\xbf{"acme": {"qps": 1}}', "stdin begins with a byte order mark (BOM): "),
            (
                b"[acme]\nqps = 1e400",
                "stdin: 1 topic is wrong: acme: qps must be a number from 0.01 to 1,000,000, not 1e400",
            ),
            (b"[acme]\nqps = -1", "stdin: 1 topic is wrong: acme: qps must be"),
        ],
    )
    def test_what_is_wrong_there_is_said_of_stdin(self, topics, piped, raw, sentence):
        piped(raw)
        code, _, err = topics("apply", "-", "--json")
        assert (2, 1) == (code, err.count("\n"))
        assert f"evenlane: {sentence}" in err
