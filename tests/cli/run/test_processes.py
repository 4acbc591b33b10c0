"""`evenlane run --processes N` and `up` as commands: on true servers, or with fake nodes where those are enough."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import psutil
import pytest

from evenlane.engine.base import names
from evenlane.engine.cli.main import run
from evenlane.engine.cli.run.http_options import http_ports
from evenlane.engine.errors import ConfigError
from evenlane.engine.runtime.embedded.child import GUARD
from evenlane.engine.runtime.embedded.ports import free_port, is_free
from evenlane.ring.membership.records import OwnerRecord, decode
from tests.ledger.cli import patiently
from tests.ledger.world import ProcessWorld
from tests.support.cli.fakes import PROGRAM, ROOT
from tests.support.until import until


class Command:
    """`evenlane ...` as a process in a session of its own, as a shell starts it, and its output."""

    def __init__(self, folder: Path, code: str = "pass") -> None:
        self._code = f"{code}; from evenlane.engine.cli.main import main; main()"
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
        assert line, self.stderr_text()
        return line.decode().strip()

    async def ended(self) -> int:
        rest, _ = await asyncio.wait_for(self.process.communicate(), 60)
        assert b"" == rest
        return self.process.returncode

    def stderr_text(self) -> str:
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
    one = Command(tmp_path, f"import evenlane.engine.cli.run.supervisor as p; p._PROGRAM = {PROGRAM!r}")

    async def started(*scripts: str, flags: Sequence[str] = ()) -> Command:
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
            *flags,
        ]
        await one.start(*arguments, **fakes.environ)
        return one

    yield started
    if one.process.returncode is None:
        one.process.kill()


@pytest.fixture
async def world(tmp_path):
    async with ProcessWorld(tmp_path) as world:
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
    """P2, P3: the line tells of the moment when each of them has its share."""
    one = await real(3, partitions=8, http_port=0)
    line = await one.line()
    served = re.fullmatch(r"ready node=n partitions=8 generation=\d+ http=(http://127.0.0.1:\d+,?){3}", line)
    assert served, line
    ports = [address.rpartition(":")[2] for address in line.partition(" http=")[2].split(",")]
    assert ["n-0", "n-1", "n-2"] == [await _node_at(port) for port in ports]
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
    assert 1 == one.stderr_text().count("it is started again")
    await until(lambda: all_owned(world, 8), 30)
    one.process.terminate()
    assert 0 == await one.ended()


@pytest.mark.real
async def test_what_waits_kills_the_first_node_before_the_others_have_joined(real, world):
    """X11, P2: it is started again as ever, and the message ends among the dead letters."""
    (world.folder / "poison.py").write_text("import os\n\n\nasync def handle(message):\n    os._exit(3)\n")
    producer = await world.producer()
    await patiently(world, "topics", "set", "acme", "--qps", "100", "--max-attempts", "1")
    await producer.put("acme", b"x", id="poison")
    one = await real(2, handler="poison:handle", partitions=8)
    assert (await one.line()).startswith("ready node=n ")
    dead = await world.dead_letters()

    async def is_dead():
        return {"poison"} == await dead.ids()

    await until(is_dead, 30, "the dead letter")
    await until(lambda: all_owned(world, 8), 30)
    await until(lambda: all_joined(world, 2), 30)  # a node that is still starting doesn't end in order
    one.process.terminate()
    assert 0 == await one.ended()


async def all_joined(world, nodes):
    """Each node has its record in etcd, which lives as long as its lease."""
    listing = await world.etcd.list(names.key(world.settings.env, "nodes") + "/")
    return len(listing.items) == nodes


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
    assert "evenlane: handler 'shop:nobody': module shop has no 'nobody'" == one.stderr_text().strip()


async def _node_at(port):
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}/readyz") as response:
        return (await response.json())["node"]


@pytest.mark.real
async def test_up_runs_nodes_as_processes(tmp_path):
    """Its line comes when all are ready, and Ctrl-C ends nodes and servers clean."""
    one = Command(tmp_path)
    (tmp_path / "shop.py").write_text("async def handle(message): pass\n")
    arguments = ["--handler", "shop:handle", "--processes", "2", "--partitions", "8", "--data-dir", str(tmp_path / "d")]
    port = next(port for port in iter(free_port, None) if is_free(port + 1))
    await one.start("up", *arguments, "--http-port", str(port), EVENLANE_NODE="n")
    try:
        line, _, http = (await one.line()).partition(" http=")
        assert re.fullmatch(r"ready nats=nats://127\.0\.0\.1:\d+ etcd=127\.0\.0\.1:\d+", line)
        assert f"http://127.0.0.1:{port},http://127.0.0.1:{port + 1}" == http
        assert ["n-0", "n-1"] == [await _node_at(port), await _node_at(port + 1)]
        children = psutil.Process(one.process.pid).children()
        assert {"n-0", "n-1"} == set(one.nodes())
        os.killpg(one.process.pid, signal.SIGINT)
        assert 0 == await one.ended()
        assert (4, 2) == (len(children), one.stderr_text().count('"node stopped", "clean": true'))
        assert not any(map(is_alive, children))
    finally:
        if one.process.returncode is None:
            one.process.kill()


def test_each_serves_http_on_a_port_of_its_own():
    """Surfaces: ports count up from the one given; 0 is any free one."""
    assert ([8080, 8081], [0, 0], []) == tuple([*http_ports(first, 2)] for first in (8080, 0, None))
    assert [65_534, 65_535] == [*http_ports(65_534, 2)]
    with pytest.raises(
        ConfigError, match="--http-port 65534 leaves no port for each of 3 processes: 65533 is the highest"
    ):
        http_ports(65_534, 3)


async def test_ports_are_looked_at_before_any_node_starts(command, fakes):
    """The third one is taken: one sentence, and no node has lived."""
    port = next(port for port in iter(free_port, None) if is_free(port - 1) and is_free(port - 2))
    with socket.create_server(("127.0.0.1", port)):
        one = await command("ready", "ready", "ready", flags=["--http-port", str(port - 2)])
        assert 1 == await one.ended()
    taken = f"port {port} on 127.0.0.1 is taken: choose another --http-port, or stop what listens there"
    assert f"evenlane: {taken}; --http-port {port - 2} takes {port - 2} to {port}, one a process\n" == one.stderr_text()
    assert [] == fakes.pids()


WRONG = r"""
run --handler a:b --http-port 65536
run --handler a:b --http-port x
up --http-port 8080
run --handler a:b --processes 0
run --handler a:b --processes -1
run --handler a:b --processes x
up --handler a:b --processes 0
up --handler a:b --processes 1.5
"""


def test_what_is_wrong_is_one_sentence(transcript):
    transcript.fail(WRONG)
    transcript.check()


@pytest.mark.parametrize("name", ["run", "up"])
@pytest.mark.parametrize(("cores", "most"), [(None, 64), (1, 64), (32, 256)])
def test_more_than_the_machine_can_do_are_refused(capsys, monkeypatch, name, cores, most):
    """1,000 of them would begin, and the machine with its servers would stand still."""
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert 2 == run([name, "--handler", "a:b", "--processes", str(most + 1)])
    assert f"{most + 1} are too many for one machine of {cores or 1} core" in (err := capsys.readouterr().err)
    assert f": {most} is the most here, and nodes on other machines share the work" in err
    assert 2 == run([name, "--processes", str(most)]), "there is no handler"
    assert "too many" not in capsys.readouterr().err


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
