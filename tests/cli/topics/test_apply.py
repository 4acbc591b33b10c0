"""`evenlane topics apply` on a real etcd."""

import io
import json
import os
import pty
import sys

import pytest

from evenlane.engine.cli.main import run

pytestmark = pytest.mark.real


@pytest.fixture
def on_terminal(monkeypatch):
    """Runs `evenlane ...` with stdin on a terminal: (exit code, all output)."""

    def command(arguments, answer):
        master, slave = pty.openpty()
        output = io.StringIO()
        with os.fdopen(slave) as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", terminal)
            patch.setattr(sys, "stdout", output)
            patch.setattr(sys, "stderr", output)
            os.write(master, answer.encode() or b"\x04")  # end of input
            code = run(arguments)
        os.close(master)
        return code, output.getvalue()

    return command


@pytest.fixture
def piped(monkeypatch):
    """Sets the content of stdin."""
    return lambda raw: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def test_file_makes_topics_and_shows_the_plan(topics, tmp_path):
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
def test_any_error_prevents_all_writes(topics, tmp_path, flags):
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
def test_ordered_topic_that_may_have_a_backlog_is_held(topics, tmp_path, monkeypatch, flags):
    """Its keys would move to other groups, and without NATS its backlog is unknown."""
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


def test_invalid_file_is_found_without_etcd(topics, tmp_path):
    (tmp_path / "t.toml").write_text("[a]\nqps = 1\n[b]\nqps = -2\n")
    code, _, err = topics("apply", "t.toml", "--etcd", "127.0.0.1:1")
    assert 2 == code
    assert "b: qps must be a number" in err


@pytest.mark.parametrize(("answer", "code", "made"), [("y\n", 0, 1), ("n\n", 1, 0), ("", 1, 0)])
def test_apply_on_a_terminal_asks_first(topics, on_terminal, tmp_path, answer, code, made):
    (tmp_path / "t.toml").write_text("[a]\nqps = 1\n")
    ended, output = on_terminal(["topics", "apply", "t.toml"], answer)
    assert code == ended
    assert "Write 1 topic into environment " in output
    assert output.index("1 new") < output.index("Write 1 topic")
    assert made == topics("list")[1].count("active")


@pytest.mark.usefixtures("topics")
def test_apply_with_yes_does_not_ask(on_terminal, tmp_path):
    (tmp_path / "t.toml").write_text("[a]\nqps = 1\n")
    ended, output = on_terminal(["topics", "apply", "t.toml", "--yes"], "")
    assert 0 == ended
    assert "Write" not in output


def test_at_most_a_hundred_errors_are_listed(topics, tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({f"p{n}": {"qps": -1} for n in range(120)}))
    lines = topics("apply", "t.json", "--json")[2].splitlines()
    assert ("and 20 more", "evenlane: t.json: 120 topics are wrong: nothing was written") == (*lines[-2:],)
    assert 102 == len(lines)


@pytest.mark.parametrize("raw", [b'  {"acme": {"qps": 100}}', b"[acme]\nqps = 100\n"])
def test_stdin_may_be_json_or_toml(topics, piped, raw):
    piped(raw)
    assert (0, "applied 1, accepted 1") == ((done := topics("apply", "-"))[0], done[1].splitlines()[-1])
    assert {"qps": 100.0} == json.loads(topics("get", "acme", "--json")[1])["wish"]


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"{", "stdin is not JSON: "),
        (b"[[", "stdin is not valid TOML: "),
        (b'\xef\xbb\xbf{"acme": {"qps": 1}}', "stdin begins with a byte order mark (BOM): "),
        (
            b"[acme]\nqps = 1e400",
            "stdin: 1 topic is wrong: acme: qps must be a number from 0.01 to 1,000,000, not 1e400",
        ),
        (b"[acme]\nqps = -1", "stdin: 1 topic is wrong: acme: qps must be"),
    ],
)
def test_errors_in_stdin_name_it(topics, piped, raw, sentence):
    piped(raw)
    code, _, err = topics("apply", "-", "--json")
    assert (2, 1) == (code, err.count("\n"))
    assert f"evenlane: {sentence}" in err
