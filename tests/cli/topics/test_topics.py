"""`evenlane topics` on a real etcd."""

import getpass
import json
import re
import socket

import pytest

pytestmark = pytest.mark.real


@pytest.fixture
def shown(on_etcd, transcript):
    """Runs `evenlane topics ...` and records its output; revisions vary, as the tests share etcd."""

    def run(*arguments):
        code, out, err = transcript("topics", *arguments)
        for line in out.splitlines():
            if line.startswith("revision "):
                transcript.words[line] = re.sub(r"\d+$", "REVISION", line)
        return code, out, err

    return run


def test_topic_is_made_shown_and_listed(shown, transcript):
    shown("set", "acme", "--qps", "100")
    shown("get", "acme")
    shown("list")
    transcript.check()


def test_set_get_and_list_agree_in_json(topics):
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


def test_every_field_can_be_set_and_reset(topics):
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


def test_deleted_topic_stays_paused_until_its_backlog_is_gone(topics, transcript):
    """Fault 19"""
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


def test_change_may_require_a_revision(topics):
    topics("set", "acme", "--qps", "100", "--by", "ann")
    seen = str(json.loads(topics("get", "acme", "--json")[1])["revision"])
    assert ["revision", "-", seen] in [line.split() for line in topics("get", "acme")[1].splitlines()]
    assert 0 == topics("set", "acme", "--weight", "3", "--if-revision", seen, "--by", "bob")[0]
    for arguments in (["set", "acme", "--qps", "5"], ["pause", "acme"], ["resume", "acme"], ["drain", "acme"],
                      ["delete", "acme"]):  # fmt: skip
        code, out, err = topics(*arguments, "--if-revision", seen)
        assert (1, "", 1) == (code, out, err.count("\n"))
        assert f"topic acme is no longer at revision {seen}: its spec is at revision " in err
        assert "by bob" in err


def test_history_has_author_and_fields_of_changes(topics, transcript):
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


def test_corrupted_history_is_reported(topics, by_hand, own_env):
    """F12"""
    topics("set", "acme", "--qps", "100")
    key = f"/evenlane/{own_env}/history/acme/0"
    by_hand("history", "acme/0", b"\xff")
    code, out, err = topics("history", "acme")
    assert (0, 1) == (code, len(out.splitlines()))
    assert f"note: 1 change can't be read: corrupted in etcd: {key}\n" == err
    assert {"project": "acme", "changes": [], "damaged": [key]} == json.loads(topics("history", "acme", "--json")[1])


def test_rejected_specs_are_listed_with_their_errors(topics, by_hand):
    topics("set", "good", "--qps", "1")
    by_hand("topics", "bad", b'{"qps": -1}')
    by_hand("topics", "good", b'{"qps": NaN}')
    code, out, err = topics("list")
    assert (0, "note: 2 specs are rejected; the last good spec of a topic, if any, stays in effect\n") == (code, err)
    assert "no: qps must be a number from 0.01 to 1,000,000, not NaN" in out
    assert "note: the spec of topic good can't be accepted: qps must" in topics("get", "good")[2]
    assert 1.0 == json.loads(topics("get", "good", "--json")[1])["in_force"]["qps"]


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
def test_error_is_one_sentence_with_its_exit_code(transcript):
    transcript.fail(WRONG)
    transcript.check()


WRONG_WITHOUT_ETCD = r"""
topics set acme --qps 1 --if-revision -1 --etcd 127.0.0.1:1
topics delete acme --if-revision -7 --etcd 127.0.0.1:1
topics pause acme --by '' --etcd 127.0.0.1:1
"""


def test_wrong_use_is_found_without_etcd(own_env, transcript):
    transcript.fail(WRONG_WITHOUT_ETCD)
    transcript.check()


@pytest.mark.parametrize(
    ("command", "author", "sentence"),
    [
        ("set acme --qps 1", "x" * 5_000, "--by must have 1 to 200 characters, not 5,000"),
        ("apply none.toml", "x" * 201, "--by must have 1 to 200 characters, not 201"),
        ("delete acme", "a\nb", "--by must be printable text on one line"),
    ],
)
def test_invalid_author_is_found_without_etcd(topics, command, author, sentence):
    code, out, err = topics(*command.split(), "--by", author, "--etcd", "127.0.0.1:1")
    assert (2, "", 1) == (code, out, err.count("\n"))
    assert sentence in err
