"""`evenlane dlq` on real servers (K4, X5, E13)."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from evenlane.engine.admin.dead_letters.replay import IN_FLIGHT
from evenlane.engine.cli.main import run
from evenlane.engine.core.ports import Stored
from evenlane.engine.core.wire import headers as h
from evenlane.engine.store.jetstream.client.connection import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from tests.support import ROOT
from tests.support.dead_letters import bury
from tests.support.streams import all_stored
from tests.support.until import until

pytestmark = pytest.mark.real

COMMAND = [sys.executable, "-c", "from evenlane.engine.cli.main import main; main()"]
QPS = 400  # of the topic that `env` makes


class Place:
    """An environment of the test's own, with a topic acme, told by variables."""

    def __init__(self, url: str, env: str) -> None:
        self.url, self.env = url, env

    def bury(self, *owns: str, **more) -> None:
        async def work(store):
            for start in range(0, len(owns), 500):
                some = owns[start : start + 500]
                await asyncio.gather(*(bury(store, own, env=self.env, **more) for own in some))

        self.with_store(work)

    def with_store(self, work):
        async def ask():
            store = JetStreamStore(NatsOptions((self.url,)), self.env, duplicate_window_s=1, feeds_apart=False)
            await store.open()
            try:
                await store.prepare([])
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(ask())

    def queued(self) -> list[Stored]:
        return asyncio.run(all_stored(self.url, self.env, 4))

    def ids(self) -> Counter:
        """Of the messages in the lanes."""
        return Counter(h.value(message.headers, h.ID).split(":")[1] for message in self.queued())

    def left(self, project: str = "acme") -> int:
        async def work(store):
            from evenlane.engine.base import names

            return (await store.counts(names.DEAD)).get(names.dead_subject(self.env, project), 0)

        return self.with_store(work)


@pytest.fixture
def place(servers, env, evenlane):
    assert 0 == evenlane("put", "acme", "first")[0]  # makes the streams
    return Place(servers.nats.url, env)


# ---- what is wrong


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
dlq drop idle --all
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


def test_what_is_wrong_is_one_sentence_with_the_right_code_and_nothing_is_lost(place, evenlane, transcript):
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


def test_what_was_replayed_or_dropped_already_is_told(place, capsys):
    place.bury("m1", "m2")
    assert 0 == run(["dlq", "replay", "acme", "--seq", "1"])
    assert 0 == run(["dlq", "drop", "acme", "--seq", "2"])
    assert "replayed 1\ndropped 1\n" == capsys.readouterr().out
    for arguments in (["replay", "acme", "--seq", "1"], ["drop", "acme", "--seq", "2"], ["show", "acme", "2"]):
        assert 1 == run(["dlq", *arguments])
        assert "isn't there any more: it was replayed or dropped, or its time (30d) was up" in capsys.readouterr().err
    for arguments in (["replay", "acme", "--all"], ["drop", "acme", "--all", "--json"]):
        assert 1 == run(["dlq", *arguments])
        assert ("", 1) == ((reported := capsys.readouterr()).out, reported.err.count("\n"))
        assert "project 'acme' has no dead letters" in reported.err
    assert {"m1": 1} == place.ids() - Counter(id_of_first(place))


def id_of_first(place) -> list[str]:
    [first] = [message for message in place.queued() if message.body == b"first"]
    return [h.value(first.headers, h.ID).split(":")[1]]


# ---- list and show


def test_list_and_show_for_people(place, transcript):
    place.bury("m1", "m2", priority="high", group=1, Evenlane_Error="ValueError: \x1b[2Jwiped")
    transcript("dlq", "list", "acme", "--limit", "1")
    transcript("dlq", "show", "acme", "1")
    transcript.check()


def test_list_and_show_in_json_are_one_document(place, capsys):
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


def test_a_project_without_letters_has_an_empty_list(place, capsys):
    assert 0 == run(["dlq", "list", "acme"])
    assert "acme has no dead letters\n" == capsys.readouterr().out
    assert 0 == run(["dlq", "list", "acme", "--json"])
    assert [] == json.loads(capsys.readouterr().out)["letters"]


# ---- replay


def test_a_replay_with_failures_tells_which_and_ends_with_1(place, capsys):
    place.bury("m1")
    place.bury("odd", priority="urgent")
    assert 1 == run(["dlq", "replay", "acme", "--all", "--json"])
    reported = json.loads(capsys.readouterr().out)
    assert (1, [(2, "odd")]) == (reported["replayed"], [(each["seq"], each["id"]) for each in reported["failed"]])
    assert 1 == run(["dlq", "replay", "acme", "--all"])
    out, err = capsys.readouterr()
    assert "replayed 0, failed 1\n" == out
    assert err.startswith("dead letter 2 (odd) stays: its priority 'urgent' is none of this cluster's")


def test_5_000_letters_go_at_a_rate_and_each_once(place, capsys):
    """X5: a stream, no burst. What is measured is the store's own time."""
    owns, rate = [f"m{number}" for number in range(5_000)], 2_000
    place.bury(*owns)
    assert 0 == run(["dlq", "replay", "acme", "--all", "--rate", str(rate), "--json"])
    out = capsys.readouterr().out
    assert {"replayed": 5_000, "failed": []} == json.loads(out)
    replayed = [message for message in place.queued() if h.value(message.headers, h.ORIGIN)]
    assert Counter(owns) == Counter(h.value(each.headers, h.ID).split(":")[1] for each in replayed)
    times = sorted(each.at for each in replayed)
    assert (times[-1] - times[0]) / 1e9 >= 0.9 * 5_000 / rate
    assert 0 == place.left()


def test_without_a_rate_it_goes_at_the_topics_own(place, capsys):
    place.bury(*(f"m{number}" for number in range(QPS)))
    started = time.monotonic()
    assert 0 == run(["dlq", "replay", "acme", "--all"])
    assert time.monotonic() - started >= 0.9
    assert "replayed 400\n" == capsys.readouterr().out


@pytest.mark.parametrize("window", ["30s", "1s"])
def test_killed_and_begun_again_it_loses_nothing(place, capsys, monkeypatch, window):
    """L, D: twice comes what was put and not removed when it was killed, and within the window not even that."""
    owns = [f"m{number}" for number in range(3_000)]
    monkeypatch.setenv("EVENLANE_DUPLICATE_WINDOW", window)
    monkeypatch.setenv("EVENLANE_ENV", place.env + window)
    place.env += window
    assert 0 == run(["topics", "set", "acme", "--qps", "400"])
    assert 0 == run(["put", "acme", "first"])
    place.bury(*owns)
    with subprocess.Popen([*COMMAND, "dlq", "replay", "acme", "--all", "--rate", "1500"]) as killed:

        async def some() -> bool:
            return len(await all_stored(place.url, place.env, 4)) > 300

        asyncio.run(until(some, 30))
        killed.kill()
    left = place.left()
    assert 0 < left < 3_000
    if window == "1s":
        time.sleep(1.2)  # no event tells that ids are forgotten
    assert 0 == run(["dlq", "replay", "acme", "--all", "--rate", "5000"])
    found = place.ids() - Counter(id_of_first(place))
    assert (set(owns), 0) == (set(found), place.left())
    twice = sum(found.values()) - 3_000
    assert twice == 0 if window == "30s" else twice <= IN_FLIGHT


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.full)]
)
def test_a_signal_ends_it_in_order(place, number, code):
    """L, D: what is on its way ends, the rest stays, and exit code and output are those of the signal."""
    place.bury(*(f"m{number}" for number in range(500)))
    with subprocess.Popen(
        [*COMMAND, "dlq", "replay", "acme", "--all", "--rate", "100", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as replay:  # fmt: skip

        async def some() -> bool:
            return len(await all_stored(place.url, place.env, 4)) > 20

        asyncio.run(until(some, 30))
        replay.send_signal(number)
        assert (b"", code) == (replay.stdout.read(), replay.wait(10))
        assert b"Traceback" not in replay.stderr.read()
    assert 500 == place.left() + sum(place.ids().values()) - 1


def test_progress_is_told_on_stderr(place):
    place.bury(*(f"m{number}" for number in range(500)))
    done = subprocess.run(
        [*COMMAND, "dlq", "replay", "acme", "--all", "--rate", "200"], capture_output=True, check=True
    )
    assert b"replayed 500\n" == done.stdout
    lines = done.stderr.decode().splitlines()
    assert lines
    assert [] == [line for line in lines if not line.endswith(" of 500 letters")]


# ---- how long they are kept


def test_keep_changes_how_long_they_are_kept(place, capsys):
    assert 0 == run(["dlq", "keep", "7d"])
    assert f"dead letters in {place.env} are kept for 7d; before: 30d\n" == capsys.readouterr().out
    assert 0 == run(["dlq", "keep", "36h", "--json"])
    assert {"env": place.env, "keep_seconds": 129_600, "before_seconds": 604_800} == json.loads(capsys.readouterr().out)
    assert 0 == run(["dlq", "list", "acme", "--json"])
    assert 129_600 == json.loads(capsys.readouterr().out)["keep_seconds"]


def test_the_setting_counts_where_the_stream_is_made_and_letters_go_when_their_time_is_up(place, capsys, monkeypatch):
    for key, value in {"ENV": place.env + "k", "DUPLICATE_WINDOW": "1s", "DEAD_LETTER_KEEP": "2s"}.items():
        monkeypatch.setenv(f"EVENLANE_{key}", value)
    place.env += "k"
    assert 0 == run(["topics", "set", "acme", "--qps", "400"])
    assert 0 == run(["put", "acme", "first"])
    place.bury("m1")

    async def gone(store):
        from evenlane.engine.base import names

        async def empty() -> bool:
            return await store.counts(names.DEAD) == {}

        await until(empty, 10)

    place.with_store(gone)
    assert 1 == run(["dlq", "show", "acme", "1"])
    assert "or its time (2s) was up" in capsys.readouterr().err


def test_a_time_shorter_than_the_duplicate_window_is_refused_before_anything_is_asked(place, capsys, monkeypatch):
    monkeypatch.setenv("EVENLANE_DEAD_LETTER_KEEP", "10s")
    assert 2 == run(["dlq", "list", "acme"])
    assert "dead_letter_keep (variable EVENLANE_DEAD_LETTER_KEEP): 10s is less than" in capsys.readouterr().err


# ---- help


@pytest.mark.parametrize("command", ["list", "show", "replay", "drop", "keep"])
def test_the_examples_in_help_work_as_pasted(place, capsys, command):
    place.bury(*(f"m{number}" for number in range(5)))
    assert 0 == run(["dlq", command, "--help"])
    lines = [line.strip() for line in capsys.readouterr().out.split("Example:")[1].splitlines()]
    examples = [line for line in lines if line.startswith("evenlane dlq")]
    assert examples
    for example in examples:
        assert 0 == run(example.split()[1:]), example


def test_the_example_in_the_docs_works_as_pasted(place):
    place.bury("m1", "m2")
    text = (ROOT / "docs" / "reference" / "dead-letters.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    why = "failed 5 times ValueError: no such order"
    assert f"1 {why}\n2 {why}\n2 [] \n" == done.stdout
