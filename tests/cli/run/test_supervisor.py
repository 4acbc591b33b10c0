"""The supervisor of `--processes N`, with fake nodes."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
import typer
from structlog.testing import capture_logs

from evenlane.engine.cli.run import supervisor as processes
from evenlane.engine.cli.run.claims import ProcessClaims
from evenlane.engine.cli.run.lifeline import NodeReady, parse_message
from evenlane.engine.cli.run.supervisor import Supervisor, arguments, describe_exit, pause_after
from evenlane.engine.errors import EvenlaneError, InvalidName
from tests.support.cli.fakes import PROGRAM
from tests.support.until import until


def test_pause_doubles_up_to_30_s_and_resets_after_a_minute_of_service():
    pauses = [0.0]
    for _ in range(7):
        pauses.append(pause_after(pauses[-1], 0.5))
    assert [1, 2, 4, 8, 16, 30, 30] == pauses[1:]
    assert 30 == pause_after(30, 59.9)
    assert 1 == pause_after(30, 60)


def test_exit_codes_are_described():
    assert ["exit code 1", "signal SIGKILL", "signal 40"] == [describe_exit(1), describe_exit(-9), describe_exit(-40)]


def test_messages_of_nodes_are_parsed():
    assert NodeReady(12, 3, "online") == parse_message(b"ready 12 3 online\n")
    assert NodeReady(0, 3, "online_audit", "http://a:1") == parse_message(b"ready 0 3 online_audit http://a:1\n")
    assert parse_message(b"joined\n") is None


def test_node_gets_the_given_flags(monkeypatch):
    given = {"nats": None, "config": Path("f.toml"), "lease_ttl": "2"}
    monkeypatch.setattr("sys.argv", ["evenlane", "run"])
    assert ["--handler=a:b", "--config=f.toml", "--lease-ttl=2"] == arguments({"handler": "a:b"} | given)
    monkeypatch.setattr("sys.argv", ["evenlane", "run", "--debug"])
    assert ["--handler=a:b", "--debug"] == arguments({"handler": "a:b"})


class Recorder:
    def __init__(self, then=lambda: None) -> None:
        self.calls: list[dict[str, NodeReady]] = []
        self._then = then

    async def __call__(self, ready_nodes) -> None:
        self.calls.append(dict(ready_nodes))
        self._then()


async def ended(supervisor, recorder) -> bool:
    return await asyncio.wait_for(supervisor.run(recorder), 120)


async def test_on_ready_is_called_once_and_stop_sends_each_node_one_signal(fakes):
    supervisor = fakes("ready", "ready", "ready")
    recorder = Recorder(supervisor.stop)
    assert await ended(supervisor, recorder)
    assert [dict.fromkeys(("n-0", "n-1", "n-2"), NodeReady(4, 7, "online"))] == recorder.calls
    assert ["SIGTERM"] * 3 == fakes.signals()
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_single_process_is_numbered_too(fakes):
    supervisor = fakes("ready")
    recorder = Recorder(supervisor.stop)
    assert await ended(supervisor, recorder)
    assert [{"n-0": NodeReady(4, 7, "online")}] == recorder.calls


async def test_nodes_are_in_sessions_of_their_own(fakes):
    """A terminal's Ctrl-C, which goes to the foreground group, reaches only the supervisor."""
    seen = []
    supervisor = fakes("ready", "ready")

    def look():
        seen.extend(os.getsid(pid) for pid in fakes.pids())
        supervisor.stop()

    assert await ended(supervisor, Recorder(look))
    assert sorted(fakes.pids()) == sorted(seen)


@pytest.mark.parametrize("last", ["done 1", "done 0", "kill"])
async def test_ended_node_is_restarted_and_others_keep_running(fakes, last):
    """E7"""
    supervisor = fakes("ready", f"{last}\n{last}\nready", "ready")
    recorder = Recorder()
    running = asyncio.create_task(ended(supervisor, recorder))
    await until(lambda: len(fakes.pids("n-1")) == 3 and recorder.calls)
    assert (1, 1, 1) == (len(fakes.pids("n-0")), len(fakes.pids("n-2")), len(recorder.calls))
    supervisor.stop()
    assert await running
    assert ["SIGTERM"] * 3 == fakes.signals()


@pytest.mark.parametrize(
    ("script", "end"), [("exit 1", "exit code 1"), ("joined 2", "exit code 2"), ("joined 0", "exit code 0")]
)
@pytest.mark.parametrize("place", [0, 2])
async def test_node_that_ends_before_it_is_ready_ends_all(fakes, script, end, place):
    scripts = ["ready"] * 3
    scripts[place] = script
    recorder = Recorder()
    with pytest.raises(EvenlaneError, match=f"^node n-{place} ended with {end} before it was ready$"):
        await ended(fakes(*scripts), recorder)
    assert [] == recorder.calls
    assert not any(map(psutil.pid_exists, fakes.pids()))


@pytest.mark.parametrize("place", [0, 2])
async def test_node_that_dies_with_a_lease_before_readiness_is_restarted(fakes, place):
    """X11: a message may have killed it. A node that ends with an error has revoked its lease."""
    scripts = ["ready"] * 3
    scripts[place] = "dies 3\nready"
    recorder = Recorder()
    running = asyncio.create_task(ended(supervisor := fakes(*scripts), recorder))
    await until(lambda: recorder.calls)
    assert 2 == len(fakes.pids(f"n-{place}"))
    supervisor.stop()
    assert await running


async def test_only_the_first_node_reports_wrong_use(fakes):
    """For example a missing handler, which the node reports on the same stderr."""
    with pytest.raises(typer.Exit) as failure:
        await ended(fakes("exit 2", "exit 2", "exit 2"), Recorder())
    assert (2, 1) == (failure.value.exit_code, len(fakes.pids()))


async def test_node_that_does_not_drain_in_time_is_killed_and_revoked(fakes):
    supervisor = fakes("ready", "deaf", drain_grace_s=0)
    assert not await ended(supervisor, Recorder(supervisor.stop))
    assert ["SIGTERM"] * 2 == fakes.signals()
    assert not any(map(psutil.pid_exists, fakes.pids()))
    assert [("n-1", ProcessClaims("online", (1,)))] == fakes.revoked


async def test_stop_before_readiness_ends_clean(fakes):
    supervisor = fakes("ready", "mute")
    running = asyncio.create_task(ended(supervisor, recorder := Recorder()))
    await until(lambda: len(fakes.pids()) == 2)
    supervisor.stop()
    assert await running
    assert [] == recorder.calls


async def test_node_that_dies_during_its_drain_does_not_end_clean(fakes):
    """A handler may have called `os._exit(0)`."""
    supervisor = fakes("ready", "quits 0")
    assert not await ended(supervisor, Recorder(supervisor.stop))


@pytest.mark.parametrize("code", [3, 0])
async def test_stop_during_a_restart_pause_does_not_end_clean(fakes, monkeypatch, code):
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 3600)
    supervisor = fakes("ready", f"done {code}")
    running = asyncio.create_task(ended(supervisor, Recorder()))
    await until(lambda: fakes.pids("n-1") and not psutil.pid_exists(fakes.pids("n-1")[0]))
    supervisor.stop()
    assert not await running
    assert 1 == len(fakes.pids("n-1"))


async def test_frozen_node_ends_in_order(fakes):
    supervisor = fakes("ready")
    assert await ended(supervisor, Recorder(lambda: (os.kill(*fakes.pids(), signal.SIGSTOP), supervisor.stop())))


async def test_each_death_revokes_the_lease_of_that_process(fakes):
    """E7, Z1"""
    supervisor = fakes("ready", "kill\nkill\nready")
    running = asyncio.create_task(ended(supervisor, Recorder()))
    await until(lambda: len(fakes.pids("n-1")) == 3)
    assert [("n-1", ProcessClaims("online", (1,))), ("n-1", ProcessClaims("online", (2,)))] == fakes.revoked
    supervisor.stop()
    assert await running
    assert 2 == len(fakes.revoked), "nodes that ended in order have revoked their own leases"


async def test_lease_of_node_that_exits_without_revoking_it_is_revoked(fakes):
    """E7: by a defect, or since etcd was away at its end."""
    supervisor = fakes("ready", "done 0\nready")
    running = asyncio.create_task(ended(supervisor, Recorder()))
    await until(lambda: len(fakes.pids("n-1")) == 2)
    supervisor.stop()
    assert await running
    assert [("n-1", ProcessClaims("online", (1,)))] == fakes.revoked


async def test_frozen_node_keeps_its_lease(fakes):
    """Z1, fault 2: only the node that dies later loses its lease."""
    supervisor = fakes("ready", "ready", "ready")
    running = asyncio.create_task(ended(supervisor, recorder := Recorder()))
    await until(lambda: recorder.calls)
    [frozen], [killed] = fakes.pids("n-1"), fakes.pids("n-2")
    os.kill(frozen, signal.SIGSTOP)
    await until(lambda: psutil.Process(frozen).status() == psutil.STATUS_STOPPED)
    os.kill(killed, signal.SIGKILL)
    await until(lambda: len(fakes.pids("n-2")) == 2)
    os.kill(frozen, signal.SIGCONT)
    supervisor.stop()
    assert await running
    assert [("n-2", ProcessClaims("online", (1,)))] == fakes.revoked
    assert [frozen] == fakes.pids("n-1")


async def test_process_is_not_dead_before_its_last_thread(fakes):
    """Z1: the main thread has ended, and another one continues, as after `pthread_exit`."""
    supervisor = fakes("ready", "thread\nready")
    running = asyncio.create_task(ended(supervisor, recorder := Recorder()))
    await until(lambda: recorder.calls)
    [pid] = fakes.pids("n-1")
    await until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    os.kill(fakes.pids("n-0")[0], signal.SIGKILL)
    await until(lambda: len(fakes.pids("n-0")) == 2)
    assert [("n-0", ProcessClaims("online", (1,)))] == fakes.revoked
    os.kill(pid, signal.SIGKILL)
    await until(lambda: len(fakes.revoked) == 2)
    assert ("n-1", ProcessClaims("online", (1,))) == fakes.revoked[1]
    supervisor.stop()
    await running


async def test_dead_node_is_revoked_although_its_child_lives(fakes):
    """E7: after `fork`, the child has the node's line, but no lease."""
    supervisor = fakes("ready", "fork\nready")
    running = asyncio.create_task(ended(supervisor, Recorder()))
    await until(lambda: fakes.revoked)
    assert 1 == len(fakes.pids("n-1")), "the supervisor still waits for the end of the line"
    await until(lambda: len(fakes.pids("n-1")) == 2)
    supervisor.stop()
    assert await running


async def test_failed_start_of_a_process_is_retried(fakes, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(processes, "_PROGRAM", (str(python), *PROGRAM[1:]))
    supervisor = fakes("ready", "ready")

    def kill_one() -> None:
        python.unlink()
        os.kill(*fakes.pids("n-1"), signal.SIGKILL)

    with capture_logs() as lines:
        running = asyncio.create_task(ended(supervisor, Recorder(kill_one)))
        await until(lambda: "a node can't be started" in {line["event"] for line in lines})
    python.symlink_to(sys.executable)
    await until(lambda: len(fakes.pids("n-1")) == 2)
    supervisor.stop()
    assert await running
    assert 1 == len(fakes.pids("n-0"))


async def test_cancelled_supervisor_leaves_no_process(fakes):
    """A second Ctrl-C cancels it."""
    running = asyncio.create_task(fakes("deaf", "deaf").run(recorder := Recorder()))
    await until(lambda: recorder.calls)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_error_in_on_ready_ends_all_nodes(fakes):
    def fail():
        raise KeyError("defect")

    with pytest.raises(KeyError):
        await ended(fakes("ready", "ready"), Recorder(fail))
    assert ["SIGTERM"] * 2 == fakes.signals()


async def test_too_long_node_name_is_refused():
    with pytest.raises(InvalidName, match="node 'nnn"):
        Supervisor("n" * 127, 1, [], drain_grace_s=1)
