"""`evenlane topics` on a real etcd."""

import asyncio
import getpass
import json
import os
import pty
import re
import socket
import subprocess
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
def shown(on_etcd, topics, transcript):
    """Runs `evenlane topics ...` and keeps what it prints; how many changes etcd had before varies."""

    def run(*arguments):
        code, out, err = transcript("topics", *arguments)
        project = arguments[1] if len(arguments) > 1 else "acme"
        if (made := topics("get", project, "--json"))[0] == 0:
            transcript.words[f"{json.loads(made[1])['revision']}\n"] = "REVISION\n"
        return code, out, err

    return run


def test_a_topic_is_made_shown_and_listed(shown, transcript):
    shown("set", "acme", "--qps", "100")
    shown("get", "acme")
    shown("list")
    transcript.check()


def test_json_is_one_document(topics):
    code, out, err = topics("set", "acme", "--qps", "100", "--ttl", "1d", "--no-borrow", "--json")
    document = json.loads(out)
    assert (0, "") == (code, err)
    assert ("acme", True, None, 86_400.0, False) == (
        document["project"], document["accepted"], document["problem"],
        document["in_force"]["ttl"], document["in_force"]["borrow"],
    )  # fmt: skip
    assert {"qps": 100.0, "ttl": 86_400.0, "borrow": False} == document["wish"]
    assert document == json.loads(topics("get", "acme", "--json")[1])
    assert {"topics": [document]} == json.loads(topics("list", "--json")[1])
    assert document["revision"] > 1


def test_every_field_can_be_set_and_be_given_its_default_again(topics):
    numbers = ("qps", "groups", "burst", "weight", "reserve", "concurrency", "spread", "max-attempts", "max-backlog")
    flags = [part for name in numbers for part in (f"--{name}", "5")]
    flags += ["--ttl", "2h", "--ack-wait", "30s", "--ordered", "--ageing", "0.1", "--state", "paused"]
    flags += ["--backoff-base", "2s", "--backoff-factor", "3", "--backoff-cap", "1m", "--backoff-jitter", "0"]
    flags += ["--push", '{"url": "http://x", "timeout": 5}', "--borrow"]
    code, out, err = topics("set", "acme", *flags, "--json")
    assert (0, "") == (code, err)
    spec = json.loads(out)["wish"]
    assert {name.replace("-", "_"): 5 for name in numbers}.items() <= spec.items()
    assert {"base": 2.0, "factor": 3.0, "cap": 60.0, "jitter": 0.0} == spec["backoff"]
    push = {"url": "http://x", "timeout": 5.0, "secret_ref": None, "headers": {}, "concurrency": None}
    assert (7_200.0, 30.0, True, 0.1, "paused", push) == tuple(
        spec[name] for name in ("ttl", "ack_wait", "ordered", "ageing", "state", "push")
    )
    assert "weight" not in json.loads(topics("set", "acme", "--weight", "default", "--json")[1])["wish"]


def test_pause_resume_and_drain(shown, transcript):
    shown("set", "acme", "--qps", "100")
    for verb in ("pause", "resume", "drain"):
        shown(verb, "acme")
    transcript.check()


def test_a_deleted_topic_is_kept_and_paused_and_it_is_said_what_to_do(topics, transcript):
    """Fault row 19."""
    topics("set", "acme", "--qps", "100")
    for command in ("delete acme", "list", "get acme"):
        transcript("topics", *command.split())
    document = json.loads(topics("get", "acme", "--json")[1])
    assert (0, None, True, True) == (
        document["revision"], document["wish"], document["accepted"], document["in_force"]["deleted"],
    )  # fmt: skip
    for command in ("delete acme", "pause acme", "drain acme", "delete acme", "set acme --qps 7"):
        transcript("topics", *command.split())
    transcript.check()


def test_a_change_may_be_bound_to_the_revision_that_was_seen(topics):
    topics("set", "acme", "--qps", "100", "--by", "ann")
    seen = str(json.loads(topics("get", "acme", "--json")[1])["revision"])
    assert ["revision", "-", seen] in [line.split() for line in topics("get", "acme")[1].splitlines()]
    assert 0 == topics("set", "acme", "--weight", "3", "--if-revision", seen, "--by", "bob")[0]
    for arguments in (["set", "acme", "--qps", "5"], ["pause", "acme"], ["resume", "acme"], ["drain", "acme"],
                      ["delete", "acme"]):  # fmt: skip
        code, out, err = topics(*arguments, "--if-revision", seen)
        assert (1, "", 1) == (code, out, err.count("\n"))
        assert f"topic acme is not at revision {seen} any more: its wish is at revision " in err
        assert "by bob" in err


def test_the_history_says_who_changed_what(topics, transcript):
    topics("set", "acme", "--qps", "100", "--by", "ann@laptop")
    topics("set", "acme", "--qps", "150", "--weight", "2", "--by", "cy")
    topics("set", "acme", "--concurrency", "4", "--by", "cy")
    topics("pause", "acme", "--by", "bob")
    _, out, _ = transcript("topics", "history", "acme")
    for line in out.splitlines()[1:]:
        transcript.words[re.search(r"(?<=  )\d+ +", line)[0]] = "REVISION  "
    transcript.check()
    document = json.loads(topics("history", "acme", "--limit", "1", "--json")[1])
    assert ("acme", 1) == (document["project"], len(document["changes"]))
    entry = document["changes"][0]
    assert (3, "bob", "topics pause", {"state": ["active", "paused"]}) == (
        entry["number"], entry["by"], entry["via"], entry["changes"],
    )  # fmt: skip
    assert [] == document["damaged"]
    topics("resume", "acme")
    document = json.loads(topics("history", "acme", "--limit", "1", "--json")[1])
    assert f"{getpass.getuser()}@{socket.gethostname()}" == document["changes"][0]["by"]


def test_a_damaged_history_is_said(topics, etcd, own_env):
    """F12: it isn't shown as if nothing had been changed."""
    topics("set", "acme", "--qps", "100")
    key = f"/evenlane/{own_env}/history/acme/0"
    _by_hand(etcd, "history/acme/0", b"\xff")
    code, out, err = topics("history", "acme")
    assert (0, 1) == (code, len(out.splitlines()))
    assert f"note: 1 change can't be read: damaged in etcd: {key}\n" == err
    assert {"project": "acme", "changes": [], "damaged": [key]} == json.loads(topics("history", "acme", "--json")[1])


def test_wishes_that_are_refused_are_told(topics, etcd):
    topics("set", "good", "--qps", "1")
    _by_hand(etcd, "topics/bad", b'{"qps": -1}')
    _by_hand(etcd, "topics/good", b'{"qps": NaN}')
    code, out, err = topics("list")
    assert (0, "note: 2 wishes are refused; where there was a good one it stays in force\n") == (code, err)
    assert "no: qps must be a number from 0.01 to 1,000,000, not NaN" in out
    assert "note: the wish of topic good can't be accepted: qps must" in topics("get", "good")[2]
    assert 1.0 == json.loads(topics("get", "good", "--json")[1])["in_force"]["qps"]


def _by_hand(etcd, key, raw):
    async def put():
        client = EtcdCoordination([etcd.endpoint])
        await client.put(f"/evenlane/{os.environ['EVENLANE_ENV']}/{key}", raw)
        await client.close()

    asyncio.run(put())


class TestApply:
    def test_a_file_makes_many_and_shows_what_it_does(self, topics, tmp_path):
        (tmp_path / "t.toml").write_text("[a]\nqps = 1\n[b]\nqps = 2\nordered = true\n")
        plan = "PLAN  PROJECT  FIELDS\nnew   a        qps 1\nnew   b        qps 2, ordered yes\n"
        summary = "2 new, 0 changed, 0 unchanged, 0 wrong, 0 held\n"
        assert (0, plan + summary, "") == topics("apply", "t.toml", "--dry-run")
        assert "" == topics("list")[1].partition("\n")[2]
        assert (0, plan + summary + "applied 2, accepted 2\n", "") == topics("apply", "t.toml")
        (tmp_path / "t.json").write_text('{"b": {"qps": 3}, "c": {"qps": 4}, "a": {"qps": 1}}')
        assert "changed  b        qps 2 -> 3, ordered yes -> default" in topics("apply", "t.json", "--dry-run")[1]
        code, out, err = topics("apply", "t.json", "--json")
        document = json.loads(out)
        assert (0, "", 2, 2, []) == (code, err, *(document[name] for name in ("applied", "accepted", "waiting")))
        assert [("a", "unchanged"), ("b", "changed"), ("c", "new")] == [
            (row["project"], row["action"]) for row in document["plan"]
        ]
        assert {"qps": [2.0, 3.0], "ordered": [True, None]} == document["plan"][1]["changes"]
        listed = json.loads(topics("list", "--json")[1])["topics"]
        assert {"a": {"qps": 1.0}, "b": {"qps": 3.0}, "c": {"qps": 4.0}} == {t["project"]: t["wish"] for t in listed}
        assert (0, "0 new, 0 changed, 3 unchanged, 0 wrong, 0 held\n", "") == topics("apply", "t.json")

    @pytest.mark.parametrize("flags", [[], ["--dry-run"], ["--json"]])
    def test_nothing_is_written_if_anything_is_wrong_and_all_of_it_is_told(self, topics, tmp_path, flags):
        (tmp_path / "t.toml").write_text("[a]\nqps = 1\n[b]\nqps = -2\n[c]\nqps = 2\nspread = 1000\n")
        code, out, err = topics("apply", "t.toml", *flags)
        lines = err.splitlines()
        assert (2, 3, "evenlane: t.toml: 2 topics are wrong: nothing was written") == (code, len(lines), lines[2])
        assert lines[0].startswith("b: qps must be a number from 0.01 to 1,000,000, not -2")
        assert lines[1].startswith("c: spread must be at most 128")
        if flags == ["--json"]:
            document = json.loads(out)
            assert (1, 2, 0) == (document["new"], document["wrong"], document["applied"])
        else:
            assert "wrong  b        qps must be" in out
        assert "" == topics("list")[1].partition("\n")[2]

    @pytest.mark.parametrize("flags", [[], pytest.param(["--json"], marks=pytest.mark.full)])
    def test_an_ordered_topic_that_may_not_be_drained_is_held_and_nothing_else_is(
        self, topics, tmp_path, monkeypatch, flags
    ):
        """Its keys would get other groups; here nobody can tell what waits."""
        monkeypatch.setenv("EVENLANE_NATS", "127.0.0.1:1")
        topics("set", "a", "--qps", "100", "--ordered", "--state", "draining")
        topics("set", "b", "--qps", "100", "--state", "paused")
        topics("set", "c", "--qps", "100")
        topics("delete", "c")
        (tmp_path / "t.toml").write_text("[a]\nqps = 1000\nordered = true\n[b]\nqps = 100\n[c]\nqps = 7\n")
        code, out, err = topics("apply", "t.toml", "--dry-run", *flags)
        assert (1, 1) == (code, err.count("\n"))
        assert "t.toml: 1 topic is held: a: topic a is ordered and gets other groups only when" in err
        if flags:
            document = json.loads(out)
            assert (1, 0) == (document["held"], document["applied"])
            assert [("held", "resumes"), ("changed", "resumes"), ("new", "revives")] == [
                (row["action"], row["effect"]) for row in document["plan"]
            ]
        else:
            assert ["held, resumes", "changed, resumes", "new, revives"] == [
                row[:16].strip() for row in out.splitlines()[1:4]
            ]
        code, out, err = topics("apply", "t.toml", *flags)
        assert (1, 1) == (code, err.count("\n"))
        assert "1 of 3 topics are not written: a: topic a is ordered" in err
        if flags:
            assert (2, ["a"]) == ((done := json.loads(out))["applied"], [each["project"] for each in done["refused"]])
        listed = {each["project"]: each["in_force"] for each in json.loads(topics("list", "--json")[1])["topics"]}
        assert [("draining", 100), ("active", 100), ("active", 7)] == [
            (listed[project]["state"], listed[project]["qps"]) for project in "abc"
        ]

    def test_what_is_wrong_by_itself_needs_no_etcd(self, topics, tmp_path):
        (tmp_path / "t.toml").write_text("[a]\nqps = 1\n[b]\nqps = -2\n")
        code, _, err = topics("apply", "t.toml", "--etcd", "127.0.0.1:1")
        assert 2 == code
        assert "b: qps must be a number" in err

    @pytest.mark.parametrize(("answer", "code", "made"), [("y\n", 0, 1), ("n\n", 1, 0), ("", 1, 0)])
    def test_on_a_terminal_it_asks_first(self, topics, tmp_path, answer, code, made):
        (tmp_path / "t.toml").write_text("[a]\nqps = 1\n")
        ended, output = _on_a_terminal(["topics", "apply", str(tmp_path / "t.toml")], answer)
        assert code == ended
        assert "Write 1 topic into environment " in output
        assert output.index("1 new") < output.index("Write 1 topic")
        assert made == topics("list")[1].count("active")

    def test_on_a_terminal_with_yes_it_does_not(self, topics, tmp_path):
        (tmp_path / "t.toml").write_text("[a]\nqps = 1\n")
        ended, output = _on_a_terminal(["topics", "apply", str(tmp_path / "t.toml"), "--yes"], "")
        assert 0 == ended
        assert "Write" not in output


def _on_a_terminal(arguments, answer):
    """(exit code, all that was shown)."""
    master, slave = pty.openpty()
    command = [sys.executable, "-c", "from evenlane.engine.cli.main import main; main()", *arguments]
    child = subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    os.close(slave)
    os.write(master, answer.encode() or b"\x04")
    output, _ = child.communicate(timeout=30)
    os.close(master)
    return child.returncode, output


WRONG = r"""
topics set acme
topics set acme --weight 2
topics set acme --qps many
topics set acme --qps nan
topics set acme --qps 1e400
topics set acme --qps inf
topics set acme --qps 1 --ttl soon
topics set acme --qps 1 --push '{'
topics set acme --qps 1 --push '{"url": "x"}'
topics set acme --qps 1 --state off
topics set acme --qps 1 --burst 1.5
topics set 'a b' --qps 1
topics get nobody
topics pause nobody
topics delete nobody
topics history nobody
topics history acme --limit 0
topics set acme --qps 1 --if-revision x
topics set acme --qps 1 --if-revision 5
topics apply none.toml
topics list --etcd 127.0.0.1:1
"""


@pytest.mark.usefixtures("on_etcd")
def test_what_is_wrong_is_one_sentence_with_the_right_code(transcript):
    transcript.fail(WRONG)
    transcript.check()
