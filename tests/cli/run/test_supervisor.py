"""`--processes N`: a supervisor and its nodes, which are fakes here."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
import typer

from evenlane.engine.cli.run import supervisor as processes
from evenlane.engine.cli.run.claims import Claims
from evenlane.engine.cli.run.lifeline import Ready, understood
from evenlane.engine.cli.run.supervisor import Supervisor, arguments, how, pause_after
from evenlane.engine.errors import EvenlaneError, InvalidName
from tests.support.cli.fakes import PROGRAM
from tests.support.until import until


def test_the_pause_doubles_up_to_half_a_minute_and_begins_anew_after_a_minute_of_service():
    pauses = [0.0]
    for _ in range(7):
        pauses.append(pause_after(pauses[-1], 0.5))
    assert [1, 2, 4, 8, 16, 30, 30] == pauses[1:]
    assert 30 == pause_after(30, 59.9)
    assert 1 == pause_after(30, 60)


def test_the_end_of_a_process_in_words():
    assert ["exit code 1", "signal SIGKILL", "signal 40"] == [how(1), how(-9), how(-40)]


def test_what_a_node_says():
    assert Ready(12, 3) == understood(b"ready 12 3\n")
    assert Ready(0, 3, "http://127.0.0.1:8080") == understood(b"ready 0 3 http://127.0.0.1:8080\n")
    assert understood(b"joined\n") is None


def test_a_node_gets_the_flags_that_were_given(monkeypatch):
    given = {"nats": None, "config": Path("f.toml"), "lease_ttl": "2"}
    monkeypatch.setattr("sys.argv", ["evenlane", "run"])
    assert ["--handler=a:b", "--config=f.toml", "--lease-ttl=2"] == arguments({"handler": "a:b"} | given)
    monkeypatch.setattr("sys.argv", ["evenlane", "run", "--debug"])
    assert ["--handler=a:b", "--debug"] == arguments({"handler": "a:b"})


class Recorder:
    def __init__(self, then=lambda: None) -> None:
        self.calls: list[dict[str, Ready]] = []
        self._then = then

    async def __call__(self, ready_nodes) -> None:
        self.calls.append(dict(ready_nodes))
        self._then()


async def ended(supervisor, recorder) -> bool:
    return await asyncio.wait_for(supervisor.run(recorder), 30)


async def test_it_is_told_once_when_all_are_ready_and_ends_all_by_one_signal_each(fakes):
    supervisor = fakes("ready", "ready", "ready")
    recorder = Recorder(supervisor.stop)
    assert await ended(supervisor, recorder)
    assert [{"n-0": Ready(4, 7), "n-1": Ready(4, 7), "n-2": Ready(4, 7)}] == recorder.calls
    assert ["SIGTERM"] * 3 == fakes.signals()
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_a_process_is_a_node_even_if_it_is_the_only_one(fakes):
    supervisor = fakes("ready")
    recorder = Recorder(supervisor.stop)
    assert await ended(supervisor, recorder)
    assert [{"n-0": Ready(4, 7)}] == recorder.calls


async def test_nodes_are_in_sessions_of_their_own(fakes):
    """So a terminal's Ctrl-C, which goes to the whole foreground group, reaches the supervisor alone."""
    seen = []
    supervisor = fakes("ready", "ready")

    def look():
        seen.extend(os.getsid(pid) for pid in fakes.pids())
        supervisor.stop()

    assert await ended(supervisor, Recorder(look))
    assert sorted(fakes.pids()) == sorted(seen)


@pytest.mark.parametrize("last", ["done 1", "done 0", "kill"])
async def test_a_node_that_ends_later_is_started_again_and_the_others_go_on(fakes, last):
    """E7"""
    supervisor = fakes("ready", f"{last}\n{last}\nready", "ready")
    recorder = Recorder()
    running = asyncio.create_task(ended(supervisor, recorder))
    await until(lambda: len(fakes.pids("n-1")) == 3)
    assert (1, 1, 1) == (len(fakes.pids("n-0")), len(fakes.pids("n-2")), len(recorder.calls))
    supervisor.stop()
    assert await running
    assert ["SIGTERM"] * 3 == fakes.signals()


@pytest.mark.parametrize(
    ("script", "end"), [("exit 1", "exit code 1"), ("joined 2", "exit code 2"), ("joined 0", "exit code 0")]
)
@pytest.mark.parametrize("place", [0, 2])
async def test_a_node_that_ends_before_it_was_ready_ends_them_all(fakes, script, end, place):
    scripts = ["ready"] * 3
    scripts[place] = script
    recorder = Recorder()
    with pytest.raises(EvenlaneError, match=f"^node n-{place} ended with {end} before it was ready$"):
        await ended(fakes(*scripts), recorder)
    assert [] == recorder.calls
    assert not any(map(psutil.pid_exists, fakes.pids()))


@pytest.mark.parametrize("place", [0, 2])
async def test_one_that_dies_at_work_before_it_was_ready_is_started_again(fakes, place):
    """X11: a message may have killed it; it holds a lease then, which one that finds something wrong has given back."""
    scripts = ["ready"] * 3
    scripts[place] = "dies 3\nready"
    recorder = Recorder()
    running = asyncio.create_task(ended(supervisor := fakes(*scripts), recorder))
    await until(lambda: recorder.calls)
    assert 2 == len(fakes.pids(f"n-{place}"))
    supervisor.stop()
    assert await running


async def test_wrong_use_is_said_by_the_first_node_alone(fakes):
    """Such as a handler that isn't there: the node has said so in its sentence, on the same stderr."""
    with pytest.raises(typer.Exit) as failure:
        await ended(fakes("exit 2", "exit 2", "exit 2"), Recorder())
    assert (2, 1) == (failure.value.exit_code, len(fakes.pids()))


async def test_one_that_does_not_drain_in_time_is_killed_and_the_end_is_not_clean(fakes, monkeypatch):
    supervisor = fakes("ready", "deaf", drain_grace_s=0.1 - processes.KILL_AFTER_S)
    assert not await ended(supervisor, Recorder(supervisor.stop))
    assert ["SIGTERM"] * 2 == fakes.signals()
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_stopped_before_all_are_ready_it_ends_clean(fakes):
    supervisor = fakes("ready", "mute")
    running = asyncio.create_task(ended(supervisor, recorder := Recorder()))
    await until(lambda: len(fakes.pids()) == 2)
    supervisor.stop()
    assert await running
    assert [] == recorder.calls


async def test_who_dies_while_it_drains_does_not_end_clean_whatever_its_exit_code(fakes):
    """A handler may have called `os._exit(0)`."""
    supervisor = fakes("ready", "quits 0")
    assert not await ended(supervisor, Recorder(supervisor.stop))


@pytest.mark.parametrize("code", [3, 0])
async def test_stopped_while_a_node_waits_for_its_next_life_it_does_not_end_clean(fakes, monkeypatch, code):
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 3600)
    supervisor = fakes("ready", f"done {code}")
    running = asyncio.create_task(ended(supervisor, Recorder()))
    await until(lambda: fakes.pids("n-1") and not psutil.pid_exists(fakes.pids("n-1")[0]))
    supervisor.stop()
    assert not await running
    assert 1 == len(fakes.pids("n-1"))


async def test_a_frozen_node_still_ends_in_order(fakes):
    supervisor = fakes("ready")
    assert await ended(supervisor, Recorder(lambda: (os.kill(*fakes.pids(), signal.SIGSTOP), supervisor.stop())))


async def test_what_a_dead_node_held_is_revoked_once_for_each_death(fakes):
    """E7, Z1: each time the lease of the process that died, and nobody else's."""
    supervisor = fakes("ready", "kill\nkill\nready")
    running = asyncio.create_task(ended(supervisor, Recorder()))
    await until(lambda: len(fakes.pids("n-1")) == 3)
    assert [("n-1", Claims(leases=(1,))), ("n-1", Claims(leases=(2,)))] == fakes.revoked
    supervisor.stop()
    assert await running
    assert 2 == len(fakes.revoked), "those that ended in order had given back theirs"


async def test_whoever_exits_without_giving_back_its_lease_is_as_dead(fakes):
    """E7: by a defect, or as etcd was away at its end."""
    supervisor = fakes("ready", "done 0\nready")
    running = asyncio.create_task(ended(supervisor, Recorder()))
    await until(lambda: len(fakes.pids("n-1")) == 2)
    supervisor.stop()
    assert await running
    assert [("n-1", Claims(leases=(1,)))] == fakes.revoked


async def test_one_that_had_to_be_killed_at_the_end_is_revoked_before_the_supervisor_ends(fakes):
    supervisor = fakes("ready", "deaf", drain_grace_s=0.1 - processes.KILL_AFTER_S)
    assert not await ended(supervisor, Recorder(supervisor.stop))
    assert [("n-1", Claims(leases=(1,)))] == fakes.revoked


async def test_a_frozen_node_keeps_its_lease(fakes):
    """Z1, fault 2: it isn't gone. The one that dies beside it is, and later."""
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
    assert [("n-2", Claims(leases=(1,)))] == fakes.revoked
    assert [frozen] == fakes.pids("n-1")


async def test_a_process_is_not_gone_before_its_last_thread(fakes):
    """Z1: its main thread has ended, and another one goes on, as after `pthread_exit`."""
    supervisor = fakes("ready", "thread\nready")
    running = asyncio.create_task(ended(supervisor, recorder := Recorder()))
    await until(lambda: recorder.calls)
    [pid] = fakes.pids("n-1")
    await until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    os.kill(fakes.pids("n-0")[0], signal.SIGKILL)
    await until(lambda: len(fakes.pids("n-0")) == 2)
    assert [("n-0", Claims(leases=(1,)))] == fakes.revoked
    os.kill(pid, signal.SIGKILL)
    await until(lambda: len(fakes.revoked) == 2)
    assert ("n-1", Claims(leases=(1,))) == fakes.revoked[1]
    supervisor.stop()
    await running


async def test_a_child_of_the_node_that_outlives_it_is_not_waited_for(fakes):
    """E7: it has the node's line, as after `fork`, but no lease."""
    supervisor = fakes("ready", "fork\nready")
    running = asyncio.create_task(ended(supervisor, Recorder()))
    await until(lambda: fakes.revoked)
    assert 1 == len(fakes.pids("n-1")), "the line's end is still waited for"
    await until(lambda: len(fakes.pids("n-1")) == 2)
    supervisor.stop()
    assert await running


async def test_a_machine_without_room_for_another_process_is_waited_for(fakes, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(processes, "_PROGRAM", (str(python), *PROGRAM[1:]))
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 0.2)
    tried = []
    monkeypatch.setattr(processes._log, "warning", lambda event, **facts: tried.append(event))
    supervisor = fakes("ready", "done 1\nready")
    running = asyncio.create_task(ended(supervisor, Recorder(python.unlink)))
    await until(lambda: "a node can't be started" in tried)
    python.symlink_to(sys.executable)
    await until(lambda: len(fakes.pids("n-1")) == 2)
    supervisor.stop()
    assert await running
    assert 1 == len(fakes.pids("n-0"))


async def test_given_up_it_leaves_nothing(fakes):
    """As a second Ctrl-C does it."""
    running = asyncio.create_task(fakes("deaf", "deaf").run(recorder := Recorder()))
    await until(lambda: recorder.calls)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_an_error_of_who_is_told_ends_all(fakes):
    def fail():
        raise KeyError("defect")

    with pytest.raises(KeyError):
        await ended(fakes("ready", "ready"), Recorder(fail))
    assert ["SIGTERM"] * 2 == fakes.signals()


async def test_a_name_that_grows_too_long_is_told():
    with pytest.raises(InvalidName, match="node 'nnn"):
        Supervisor("n" * 127, 1, [], drain_grace_s=1)
