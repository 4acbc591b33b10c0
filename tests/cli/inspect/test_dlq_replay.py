"""K4, X5: `evenlane dlq replay` on real servers."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from evenlane.engine.admin.replays.replay import IN_FLIGHT
from evenlane.engine.cli.main import run
from evenlane.engine.core.wire import headers as h
from tests.support.until import poll

pytestmark = pytest.mark.real

COMMAND = [sys.executable, "-c", "from evenlane.engine.cli.main import main; main()"]
QPS = 400  # of the topic that `env` makes


def test_replay_with_failures_lists_them_and_fails(place, capsys):
    place.bury("m1")
    place.bury("odd", priority="urgent")
    assert 1 == run(["dlq", "replay", "acme", "--all", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (1, [(2, "odd")]) == (document["replayed"], [(each["seq"], each["id"]) for each in document["failed"]])
    assert 1 == run(["dlq", "replay", "acme", "--all"])
    out, err = capsys.readouterr()
    assert "replayed 0, failed 1\n" == out
    assert err.startswith("dead letter 2 (odd) stays: its priority 'urgent' is not one of this cluster's")


def test_replay_keeps_its_rate_and_replays_each_once(place, capsys):
    """X5: 5,000 dead letters at a steady rate, measured by the store's timestamps."""
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


def test_replay_without_rate_uses_the_topics_quota(place, capsys):
    place.bury(*(f"m{number}" for number in range(QPS)))
    started = time.monotonic()
    assert 0 == run(["dlq", "replay", "acme", "--all"])
    assert time.monotonic() - started >= 0.9
    assert "replayed 400\n" == capsys.readouterr().out


@pytest.mark.parametrize("window", ["30s", "1s"])
def test_replay_continues_after_kill_without_loss(place, capsys, monkeypatch, window):
    """L, D: messages that were put and not removed at the kill come twice; within the duplicate window, none does."""
    owns = [f"m{number}" for number in range(1_500)]
    monkeypatch.setenv("EVENLANE_DUPLICATE_WINDOW", window)
    monkeypatch.setenv("EVENLANE_ENV", place.env + window)
    place.env += window
    assert 0 == run(["topics", "set", "acme", "--qps", "400"])
    assert 0 == run(["put", "acme", "first"])
    place.bury(*owns)
    with subprocess.Popen([*COMMAND, "dlq", "replay", "acme", "--all", "--rate", "250"]) as killed:
        place.wait_until_fewer(1_400)  # the other 1,400 would take more than 5 s
        killed.kill()
    probe = ["put", "acme", "first", "--id", "probe"]
    assert 0 == run(probe)
    left = place.left()
    assert 0 < left < 1_500
    if window == "1s":  # what was put before the probe is out of the window once the probe is
        capsys.readouterr()
        assert poll(lambda: run(probe) == 0 and "duplicate" not in capsys.readouterr().out, 60)
    assert 0 == run(["dlq", "replay", "acme", "--all", "--rate", "5000"])
    found = place.ids()
    assert (set(owns), 0) == (set(found), place.left())
    twice = sum(found.values()) - 1_500
    assert twice == 0 if window == "30s" else twice <= IN_FLIGHT


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.full)]
)
def test_signal_ends_replay_in_order(place, number, code):
    """L, D: messages in flight end, the others stay dead letters."""
    place.bury(*(f"m{number}" for number in range(500)))
    with subprocess.Popen(
        [*COMMAND, "dlq", "replay", "acme", "--all", "--rate", "50", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as replay:  # fmt: skip
        place.wait_until_fewer(480)  # the other 480 would take more than 9 s
        replay.send_signal(number)
        assert (b"", code) == (replay.stdout.read(), replay.wait(60))
        assert b"Traceback" not in replay.stderr.read()
    assert 500 == place.left() + sum(place.ids().values())


def test_replay_reports_progress_on_stderr(place, evenlane):
    place.bury(*(f"m{number}" for number in range(500)))
    code, out, err = evenlane("dlq", "replay", "acme", "--all", "--rate", "200")
    assert (0, "replayed 500\n") == (code, out)
    assert err
    assert [] == [line for line in err.splitlines() if not line.endswith(" of 500 letters")]
