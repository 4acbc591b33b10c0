"""`--processes N`: a supervisor and its nodes. Fake nodes where only the supervisor matters, else the real thing."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import aiohttp
import psutil
import pytest
import typer

from engine import names
from engine.cli import processes
from engine.cli.carried_out import carried_out
from engine.cli.lifeline import Ready, understood
from engine.cli.main import run
from engine.cli.processes import Supervisor, arguments, how, pause_after
from engine.errors import ConfigError, EvenlaneError, InvalidName
from engine.servers.child import GUARD
from engine.servers.ports import free_port, is_free
from ring.memory import MemoryCoordination
from ring.records import DoneRecord, OwnerRecord, PlanRecord, decode, encode
from tests.ledger.world import World
from tests.wait import until

ROOT = Path(__file__).parents[3]
FAKE = str(Path(__file__).with_name("fake_node.py"))
PROGRAM = (sys.executable, "-P", FAKE)


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
    assert understood(b"joined\n") is None


def test_a_node_gets_the_flags_that_were_given(monkeypatch):
    given = {"nats": None, "config": Path("f.toml"), "lease_ttl": "2"}
    monkeypatch.setattr("sys.argv", ["evenlane", "run"])
    assert ["--handler=a:b", "--config=f.toml", "--lease-ttl=2"] == arguments({"handler": "a:b"} | given)
    monkeypatch.setattr("sys.argv", ["evenlane", "run", "--debug"])
    assert ["--handler=a:b", "--debug"] == arguments({"handler": "a:b"})


class Fakes:
    """Nodes n-0, n-1, ...: what each is to do in its lives, and what it did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"FAKE_NODES": str(folder), "PYTHONPATH": str(ROOT)}

    def __call__(self, *scripts: str, drain_grace_s: float = 10.0) -> Supervisor:
        self.write(*scripts)
        return Supervisor("n", len(scripts), [], environ=self.environ, drain_grace_s=drain_grace_s)

    def write(self, *scripts: str) -> None:
        for number, script in enumerate(scripts):
            (self.folder / f"n-{number}").write_text(script)

    def pids(self, node: str = "*") -> list[int]:
        return [int(line) for path in self.folder.glob(f"{node}.lives") for line in path.read_text().splitlines()]

    def signals(self) -> list[str]:
        return [line for path in self.folder.glob("*.signals") for line in path.read_text().splitlines()]


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_PROGRAM", PROGRAM)
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 0.05)
    fakes = Fakes(tmp_path)
    yield fakes
    for pid in fakes.pids():  # of a test that failed
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if FAKE in process.cmdline():
                process.kill()


class Told:
    def __init__(self, then=lambda: None) -> None:
        self.said: list[dict[str, Ready]] = []
        self._then = then

    async def __call__(self, said) -> None:
        self.said.append(dict(said))
        self._then()


async def ended(supervisor, told) -> bool:
    return await asyncio.wait_for(supervisor.run(told), 30)


async def test_it_is_told_once_when_all_are_ready_and_ends_all_by_one_signal_each(fakes):
    supervisor = fakes("ready", "ready", "ready")
    told = Told(supervisor.stop)
    assert await ended(supervisor, told)
    assert [{"n-0": Ready(4, 7), "n-1": Ready(4, 7), "n-2": Ready(4, 7)}] == told.said
    assert ["SIGTERM"] * 3 == fakes.signals()
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_a_process_is_a_node_even_if_it_is_the_only_one(fakes):
    supervisor = fakes("ready")
    told = Told(supervisor.stop)
    assert await ended(supervisor, told)
    assert [{"n-0": Ready(4, 7)}] == told.said


async def test_nodes_are_in_sessions_of_their_own(fakes):
    """So a terminal's Ctrl-C, which goes to the whole foreground group, reaches the supervisor alone."""
    seen = []
    supervisor = fakes("ready", "ready")

    def look():
        seen.extend(os.getsid(pid) for pid in fakes.pids())
        supervisor.stop()

    assert await ended(supervisor, Told(look))
    assert sorted(fakes.pids()) == sorted(seen)


@pytest.mark.parametrize("last", ["done 1", "done 0", "kill"])
async def test_a_node_that_ends_later_is_started_again_and_the_others_go_on(fakes, last):
    """E7"""
    supervisor = fakes("ready", f"{last}\n{last}\nready", "ready")
    told = Told()
    running = asyncio.create_task(ended(supervisor, told))
    await until(lambda: len(fakes.pids("n-1")) == 3)
    assert (1, 1, 1) == (len(fakes.pids("n-0")), len(fakes.pids("n-2")), len(told.said))
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
    told = Told()
    with pytest.raises(EvenlaneError, match=f"^node n-{place} ended with {end} before it was ready$"):
        await ended(fakes(*scripts), told)
    assert [] == told.said
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_wrong_use_is_said_by_the_first_node_alone(fakes):
    """Such as a handler that isn't there: the node has said so in its sentence, on the same stderr."""
    with pytest.raises(typer.Exit) as failure:
        await ended(fakes("exit 2", "exit 2", "exit 2"), Told())
    assert (2, 1) == (failure.value.exit_code, len(fakes.pids()))


async def test_one_that_does_not_drain_in_time_is_killed_and_the_end_is_not_clean(fakes, monkeypatch):
    supervisor = fakes("ready", "deaf", drain_grace_s=0.1 - processes.KILL_AFTER_S)
    assert not await ended(supervisor, Told(supervisor.stop))
    assert ["SIGTERM"] * 2 == fakes.signals()
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_stopped_before_all_are_ready_it_ends_clean(fakes):
    supervisor = fakes("ready", "mute")
    running = asyncio.create_task(ended(supervisor, told := Told()))
    await until(lambda: len(fakes.pids()) == 2)
    supervisor.stop()
    assert await running
    assert [] == told.said


async def test_stopped_while_a_node_waits_for_its_next_life_it_does_not_end_clean(fakes, monkeypatch):
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 3600)
    supervisor = fakes("ready", "done 3")
    running = asyncio.create_task(ended(supervisor, Told()))
    await until(lambda: fakes.pids("n-1") and not psutil.pid_exists(fakes.pids("n-1")[0]))
    supervisor.stop()
    assert not await running
    assert 1 == len(fakes.pids("n-1"))


async def test_a_frozen_node_still_ends_in_order(fakes):
    supervisor = fakes("ready")
    assert await ended(supervisor, Told(lambda: (os.kill(*fakes.pids(), signal.SIGSTOP), supervisor.stop())))


async def test_a_machine_without_room_for_another_process_is_waited_for(fakes, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(processes, "_PROGRAM", (str(python), *PROGRAM[1:]))
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 0.2)
    tried = []
    monkeypatch.setattr(processes._log, "warning", lambda event, **facts: tried.append(event))
    supervisor = fakes("ready", "done 1\nready")
    running = asyncio.create_task(ended(supervisor, Told(python.unlink)))
    await until(lambda: "a node can't be started" in tried)
    python.symlink_to(sys.executable)
    await until(lambda: len(fakes.pids("n-1")) == 2)
    supervisor.stop()
    assert await running
    assert 1 == len(fakes.pids("n-0"))


async def test_given_up_it_leaves_nothing(fakes):
    """As a second Ctrl-C does it."""
    running = asyncio.create_task(fakes("deaf", "deaf").run(told := Told()))
    await until(lambda: told.said)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_an_error_of_who_is_told_ends_all(fakes):
    def fail():
        raise KeyError("defect")

    with pytest.raises(KeyError):
        await ended(fakes("ready", "ready"), Told(fail))
    assert ["SIGTERM"] * 2 == fakes.signals()


async def test_a_name_that_grows_too_long_is_told():
    with pytest.raises(InvalidName, match="node 'nnn"):
        Supervisor("n" * 127, 1, [], drain_grace_s=1)


class Command:
    """`evenlane ...` as a process in a session of its own, as a shell starts it, and its output."""

    def __init__(self, folder: Path, code: str = "pass") -> None:
        self._code = f"{code}; from engine.cli.main import main; main()"
        self.log = folder / "stderr"
        self.folder = folder
        self.process: asyncio.subprocess.Process

    async def start(self, *arguments: str, **environ: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")}
        guard = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid())]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *guard, sys.executable, "-P", "-c", self._code, *arguments, cwd=self.folder, start_new_session=True,
                stdout=asyncio.subprocess.PIPE, stderr=log, env=inherited | {"PYTHONPATH": str(ROOT)} | environ,
            )  # fmt: skip

    async def line(self) -> str:
        line = await asyncio.wait_for(self.process.stdout.readline(), 60)
        assert line, self.said()
        return line.decode().strip()

    async def ended(self) -> int:
        rest, _ = await asyncio.wait_for(self.process.communicate(), 60)
        assert b"" == rest
        return self.process.returncode

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def nodes(self) -> dict[str, psutil.Process]:
        return {
            part.removeprefix("--node="): child
            for child in psutil.Process(self.process.pid).children()
            for part in child.cmdline()
            if part.startswith("--node=")
        }


@pytest.fixture
async def command(fakes, tmp_path):
    """`evenlane run` with fake nodes; no server is needed."""
    one = Command(tmp_path, f"import engine.cli.processes as p; p._PROGRAM = {PROGRAM!r}")

    async def started(*scripts: str) -> Command:
        fakes.write(*scripts)
        arguments = [
            "run",
            "--handler",
            "a:b",
            "--node",
            "n",
            "--processes",
            str(len(scripts)),
            "--etcd",
            "127.0.0.1:1",
        ]
        await one.start(*arguments, **fakes.environ)
        return one

    yield started
    if one.process.returncode is None:
        one.process.kill()


@pytest.fixture
async def world(tmp_path):
    async with World(tmp_path) as world:
        yield world


@pytest.fixture
async def real(world, tmp_path):
    """`evenlane run --processes` with true nodes on true servers."""
    one = Command(tmp_path)
    (tmp_path / "shop.py").write_text("async def handle(message): pass\n")

    async def started(processes: int, handler: str = "shop:handle", **settings: object) -> Command:
        given = {
            "nats": world.servers.nats.url, "etcd": world.servers.etcd.endpoint, "node": "n", "lease_ttl": 2,
        } | settings  # fmt: skip
        environ = {f"EVENLANE_{key.upper()}": str(value) for key, value in given.items()}
        await one.start("run", "--handler", handler, "--processes", str(processes), **environ)
        return one

    yield started
    if one.process.returncode is None:
        one.process.kill()


async def owned(world) -> dict[str, int]:
    """Partitions by node."""
    found = await world.etcd.list(names.key("online", "owners") + "/")
    return Counter(decode(OwnerRecord, item.key, item.value).id for item in found.items)


@pytest.mark.real
async def test_three_nodes_are_ready_in_one_line_and_end_clean(real, world):
    """P2: the line tells of the moment when each of them has its share."""
    one = await real(3, partitions=8)
    line = await one.line()
    assert re.fullmatch(r"ready node=n partitions=8 generation=\d+", line)
    shares = await owned(world)
    assert ({"n-0", "n-1", "n-2"}, 8) == (set(shares), shares.total())
    assert {"n-0", "n-1", "n-2"} == set(one.nodes())
    assert {"n-0", "n-1", "n-2"} == {item.key.rpartition("/")[2] for item in await nodes_known(world)}
    nodes = one.nodes().values()
    one.process.terminate()
    assert 0 == await one.ended()
    assert not any(map(is_alive, nodes))
    assert () == await nodes_known(world)
    assert 0 == (await owned(world)).total()


async def nodes_known(world):
    return (await world.etcd.list(names.key("online", "nodes") + "/")).items


@pytest.mark.real
async def test_a_node_killed_comes_back_under_its_name(real, world):
    """E7"""
    one = await real(2, partitions=8)
    await one.line()
    before = one.nodes()
    before["n-1"].kill()

    async def is_back():
        known = {item.key.rpartition("/")[2]: item for item in await nodes_known(world)}
        return "n-1" in known and f'"pid":{before["n-1"].pid}' not in known["n-1"].value.decode().replace(" ", "")

    await until(is_back, 30)
    await until(lambda: {"n-0", "n-1"} == set(one.nodes()))
    assert before["n-0"].pid == one.nodes()["n-0"].pid
    assert before["n-1"].pid != one.nodes()["n-1"].pid
    assert 1 == one.said().count("it is started again")
    await until(lambda: all_owned(world, 8), 30)
    one.process.terminate()
    assert 0 == await one.ended()


async def all_owned(world, partitions):
    return partitions == (await owned(world)).total()


@pytest.mark.real
async def test_kill_9_of_the_supervisor_gives_the_partitions_back_at_once(real, world):
    """E7: nodes drain when their supervisor is gone, so nobody has to wait for their leases to end."""
    one = await real(2, partitions=8, lease_ttl=600)
    await one.line()
    nodes = one.nodes().values()
    one.process.kill()
    await until(lambda: not any(map(is_alive, nodes)), 30)
    assert () == await nodes_known(world)
    assert 0 == (await owned(world)).total()


@pytest.mark.real
async def test_a_handler_that_is_not_there_is_told_once(real):
    one = await real(3, "shop:nobody")
    assert 2 == await one.ended()
    assert "evenlane: handler 'shop:nobody': module shop has no 'nobody'" == one.said().strip()


async def _node_at(port):
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}/readyz") as response:
        return (await response.json())["node"]


@pytest.mark.real
async def test_up_runs_nodes_as_processes(tmp_path):
    """Its line comes when all are ready, and Ctrl-C ends nodes and servers clean."""
    one = Command(tmp_path)
    (tmp_path / "shop.py").write_text("async def handle(message): pass\n")
    arguments = ["--handler", "shop:handle", "--processes", "2", "--partitions", "8", "--data-dir", str(tmp_path / "d")]
    port = free_port()
    while not is_free(port + 1):
        port = free_port()
    await one.start("up", *arguments, "--http-port", str(port), EVENLANE_NODE="n")
    try:
        told = rf"ready nats=nats://127\.0\.0\.1:\d+ etcd=127\.0\.0\.1:\d+ http=http://127\.0\.0\.1:{port}"
        assert re.fullmatch(told, await one.line())
        assert ["n-0", "n-1"] == [await _node_at(port), await _node_at(port + 1)]
        children = psutil.Process(one.process.pid).children()
        assert {"n-0", "n-1"} == set(one.nodes())
        os.killpg(one.process.pid, signal.SIGINT)
        assert 0 == await one.ended()
        assert (4, 2) == (len(children), one.said().count('"node stopped", "clean": true'))
        assert not any(map(is_alive, children))
    finally:
        if one.process.returncode is None:
            one.process.kill()


def test_each_serves_http_on_a_port_of_its_own():
    """Surfaces: ports count up from the one given; 0 is any free one."""
    assert [["--http-port=8080"], ["--http-port=8081"]] == processes.http_flags(8080, 2)
    assert [["--http-port=0"], ["--http-port=0"]] == processes.http_flags(0, 2)
    assert [[], []] == processes.http_flags(None, 2)
    assert ["--http-port=65535"] == processes.http_flags(65_534, 2)[1]
    with pytest.raises(
        ConfigError, match="--http-port 65534 leaves no port for each of 3 processes: 65533 is the highest"
    ):
        processes.http_flags(65_534, 3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["run", "--handler", "a:b", "--http-port", "65536"],
            "http_port (flag --http-port): '65536' is not a whole number",
        ),
        (["run", "--handler", "a:b", "--http-port", "x"], "http_port (flag --http-port): 'x' is not a whole number"),
        (["up", "--http-port", "8080"], "--http-port is given without --handler, whose node would serve it"),
    ],
)
def test_a_wrong_http_port_is_told(capsys, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert 2 == run(arguments)
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert sentence in err


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5"])
@pytest.mark.parametrize("name", ["run", "up"])
def test_a_wrong_number_is_told(capsys, name, number):
    assert 2 == run([name, "--handler", "a:b", "--processes", number])
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert f"evenlane: Invalid value for '--processes': {number!r} is not a whole number from 1 to 1024" in err


def test_processes_of_nothing_are_told(capsys, tmp_path):
    assert 2 == run(["up", "--data-dir", str(tmp_path), "--processes", "2"])
    assert (
        "evenlane: --processes is given without --handler, which the processes would run\n" == capsys.readouterr().err
    )


async def test_if_etcd_cannot_be_asked_the_line_adds_up_what_the_nodes_said(command):
    one = await command("ready", "ready", "ready")
    assert "ready node=n partitions=12 generation=7" == await one.line()
    os.killpg(one.process.pid, signal.SIGINT)
    assert 0 == await one.ended()


async def test_a_second_ctrl_c_ends_at_once(command, fakes):
    one = await command("deaf", "deaf")
    await one.line()
    os.killpg(one.process.pid, signal.SIGINT)
    await until(lambda: ["SIGTERM"] * 2 == fakes.signals())
    os.killpg(one.process.pid, signal.SIGINT)
    assert 130 == await one.ended()
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_kill_9_of_the_supervisor_ends_the_nodes_in_order_and_who_is_deaf_by_force(command, fakes):
    one = await command("ready", "deaf")
    await one.line()
    nodes = [psutil.Process(pid) for pid in fakes.pids()]
    one.process.kill()
    await until(lambda: not any(is_alive(node) for node in nodes))
    assert ["SIGTERM"] * 2 == fakes.signals()


def is_alive(process: psutil.Process) -> bool:
    """A zombie isn't: what remains of it waits for its new parent, not for us."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def put(coordination, key, record):
    await coordination.put(names.key("online", *key.split("/")), encode(record))


async def test_partitions_are_counted_when_all_plans_are_carried_out():
    coordination = MemoryCoordination()
    await put(coordination, "plan/n-0", PlanRecord(generation=2, partitions=[0, 1]))
    await put(coordination, "plan/n-1", PlanRecord(generation=3, partitions=[2]))
    await put(coordination, "done/n-0", DoneRecord(generation=2))
    for partition, owner in enumerate(["n-0", "n-0", "n-0", "other"]):
        await put(coordination, f"owners/{partition}", OwnerRecord(id=owner, epoch=9))
    await coordination.put(names.key("online", "owners", "4"), b"what nobody can read")
    counting = asyncio.create_task(carried_out(coordination, "online", ["n-0", "n-1"], 3600))
    assert not (await asyncio.wait({counting}, timeout=0.3))[0]  # n-1 has yet to take over
    await put(coordination, "owners/2", OwnerRecord(id="n-1", epoch=10))
    await put(coordination, "done/n-1", DoneRecord(generation=3))
    assert Ready(3, 3) == await asyncio.wait_for(counting, 10)


async def test_what_is_never_carried_out_is_counted_as_it_stands():
    coordination = MemoryCoordination()
    await put(coordination, "owners/1", OwnerRecord(id="n-0", epoch=9))
    assert Ready(1, 0) == await asyncio.wait_for(carried_out(coordination, "online", ["n-0", "n-1"], 0.2), 10)
