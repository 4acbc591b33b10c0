"""K4, X5, E13: `evenlane dlq` on real servers."""

import json
import re

import pytest

from evenlane.engine.base import names
from evenlane.engine.cli.main import run
from tests.support import ROOT
from tests.support.until import until

pytestmark = pytest.mark.real


# ---- errors


WRONG = r"""
dlq list a.b
dlq list acme --limit 0
dlq list nobody
dlq show acme x
dlq show acme 0
dlq show acme 99
dlq show acme 3
dlq replay acme
dlq drop acme
dlq drop acme --seq 1 --all
dlq replay acme --all --rate 0
dlq replay acme --all --rate fast
dlq replay _stray --all
dlq replay idle --all
dlq drop acme --all
dlq drop idle --all --yes
dlq replay nobody --all
dlq replay other --all
dlq replay tired --all
dlq keep soon
dlq keep 0.5s
dlq keep 29s
dlq list acme --env nowhere
dlq list acme --nats nats://127.0.0.1:1
dlq list acme --etcd 127.0.0.1:1
"""


def test_error_is_one_sentence_and_loses_no_dead_letter(place, evenlane, transcript):
    place.bury("m1")
    place.bury("odd", priority="urgent")
    place.bury("theirs", project="other")
    place.bury("late", project="tired")
    for command in ("set idle --qps 1", "set tired --qps 1", "drain tired"):
        evenlane("topics", *command.split())
    transcript.fail(WRONG)
    assert (1, "replayed 0, failed 1\n") == transcript("dlq", "replay", "acme", "--seq", "2")[:2]
    transcript.check()
    assert (2, 1, 1, 1) == (place.left(), place.left("other"), place.left("tired"), len(place.queued()))


def test_replayed_or_dropped_dead_letter_is_reported_missing(place, capsys):
    place.bury("m1", "m2")
    assert 0 == run(["dlq", "replay", "acme", "--seq", "1"])
    assert 0 == run(["dlq", "drop", "acme", "--seq", "2"])
    assert "replayed 1\ndropped 1\n" == capsys.readouterr().out
    for arguments in (["replay", "acme", "--seq", "1"], ["drop", "acme", "--seq", "2"], ["show", "acme", "2"]):
        assert 1 == run(["dlq", *arguments])
        assert "no longer exists: it was replayed or dropped, or its time (30d) ran out" in capsys.readouterr().err
    for arguments in (["replay", "acme", "--all"], ["drop", "acme", "--all", "--yes", "--json"]):
        assert 1 == run(["dlq", *arguments])
        assert ("", 1) == ((captured := capsys.readouterr()).out, captured.err.count("\n"))
        assert "project 'acme' has no dead letters" in captured.err
    assert {"m1": 1} == place.ids()


def test_drop_of_all_asks_for_the_name(place, capsys, monkeypatch):
    """K4: it can't be undone. stdout has the document alone."""
    place.bury("m1", "m2")
    asked, answers = [], ["acmee", "acme"]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda text, *, err: asked.append((text, err)) or answers.pop(0))
    assert 1 == run(["dlq", "drop", "acme", "--all"])
    assert "that is not 'acme': nothing was dropped" in capsys.readouterr().err
    assert 2 == place.left()
    assert 0 == run(["dlq", "drop", "acme", "--all", "--json"])
    assert ({"dropped": 2}, 0) == (json.loads(capsys.readouterr().out), place.left())
    deed = f"This permanently removes 2 dead letters of acme in environment {place.env!r}."
    assert 2 * [(f"{deed} To continue, type the project's name", True)] == asked


# ---- list and show


def test_list_and_show_print_text(place, transcript):
    place.bury("m1", "m2", priority="high", group=1, Evenlane_Error="ValueError: \x1b[2Jwiped")
    transcript("dlq", "list", "acme", "--limit", "1")
    transcript("dlq", "show", "acme", "1")
    transcript.check()


def test_list_and_show_agree_in_json(place, capsys):
    place.bury("m1", body=b"\xff\x00")
    assert 0 == run(["dlq", "list", "acme", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert (1, 30 * 86_400, "acme") == (listed["total"], listed["keep_seconds"], listed["project"])
    assert 0 == run(["dlq", "show", "acme", "1", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert "/wA=" == shown.pop("body_base64")
    assert [shown] == listed["letters"]
    assert ("m1", 5, f"LANES_{place.env}_3:17", "customer-7", 2) == (
        shown["id"], shown["attempts"], shown["origin"], shown["key"], shown["size"],
    )  # fmt: skip
    assert {"partition": 3, "group": 0, "priority": "mid"} == shown["queue"]


def test_list_without_dead_letters_is_empty(place, capsys):
    assert 0 == run(["dlq", "list", "acme"])
    assert "acme has no dead letters\n" == capsys.readouterr().out
    assert 0 == run(["dlq", "list", "acme", "--json"])
    assert [] == json.loads(capsys.readouterr().out)["letters"]


# ---- retention


def test_keep_changes_the_retention(place, capsys):
    assert 0 == run(["dlq", "keep", "7d"])
    assert f"dead letters in {place.env} are kept for 7d; previously: 30d\n" == capsys.readouterr().out
    assert 0 == run(["dlq", "keep", "36h", "--json"])
    assert {"env": place.env, "keep_seconds": 129_600, "before_seconds": 604_800} == json.loads(capsys.readouterr().out)
    assert 0 == run(["dlq", "list", "acme", "--json"])
    assert 129_600 == json.loads(capsys.readouterr().out)["keep_seconds"]


def test_dead_letters_expire_after_the_configured_time(place, capsys, monkeypatch):
    for key, value in {"ENV": place.env + "k", "DUPLICATE_WINDOW": "1s", "DEAD_LETTER_KEEP": "2s"}.items():
        monkeypatch.setenv(f"EVENLANE_{key}", value)
    place.env += "k"
    assert 0 == run(["topics", "set", "acme", "--qps", "400"])
    assert 0 == run(["put", "acme", "first"])
    place.bury("m1")

    async def gone(store):
        async def empty() -> bool:
            return await store.counts(names.DEAD) == {}

        await until(empty)

    place.with_store(gone)
    assert 1 == run(["dlq", "show", "acme", "1"])
    assert "or its time (2s) ran out" in capsys.readouterr().err


def test_retention_below_the_duplicate_window_is_refused(place, capsys, monkeypatch):
    monkeypatch.setenv("EVENLANE_DEAD_LETTER_KEEP", "10s")
    assert 2 == run(["dlq", "list", "acme"])
    assert "dead_letter_keep (variable EVENLANE_DEAD_LETTER_KEEP): 10s is less than" in capsys.readouterr().err


# ---- help


@pytest.mark.parametrize("command", ["list", "show", "replay", "drop", "keep"])
def test_examples_in_help_work_as_pasted(place, capsys, command):
    place.bury(*(f"m{number}" for number in range(5)))
    assert 0 == run(["dlq", command, "--help"])
    lines = [line.strip() for line in capsys.readouterr().out.split("Example:")[1].splitlines()]
    examples = [line for line in lines if line.startswith("evenlane dlq")]
    assert examples
    for example in examples:
        assert 0 == run(example.split()[1:]), example


def test_program_in_the_docs_works_as_pasted(place, capsys):
    place.bury("m1", "m2")
    text = (ROOT / "docs" / "reference" / "dead-letters.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    capsys.readouterr()
    exec(code, {"__name__": "__main__"})
    why = "failed 5 times ValueError: no such order"
    assert f"1 {why}\n2 {why}\n2 [] \n" == capsys.readouterr().out
