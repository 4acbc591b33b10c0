"""`evenlane top` on real servers and a real node: JSON, plain lines into a pipe, and a terminal."""

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import sys
import termios

import pytest

from evenlane.engine.base import names
from evenlane.engine.cli.top.source import connect_source
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.producer.put import Put
from tests.support.cli.outside import CODE, evenlane
from tests.support.until import until

pytestmark = pytest.mark.real

_BROKEN = f"from evenlane.engine.cli.top import view_state; view_state.lines = lambda *_: 1 / 0; {CODE}"
_COMMAND = [sys.executable, "-c", CODE, "top"]


@pytest.fixture
async def world(world):
    await world.node()
    await world.topics("acme", "bolt", qps=0.01, groups=1, burst=1)
    producer = await world.producer()
    await world.put(producer, [Put(project, b"x") for project in ["acme"] * 6 + ["bolt"] * 3])
    return world


async def test_top_on_a_running_node(world, evenlane_in_thread):
    """All parts share a world, as a node takes seconds to start."""
    async with connect_source(world.settings, "somebody") as source:

        async def both_wait():
            """Until they have waited for a second, too: from then on there is a reason."""
            tenants = {tenant["project"]: tenant for tenant in (await source.overview())["tenants"]}
            backlogs = {name: tenant["backlog"] for name, tenant in tenants.items()}
            return backlogs == {"acme": 5, "bolt": 2} and tenants["acme"]["reason"] == "quota"

        await until(both_wait, 40)
        await _json(evenlane_in_thread)
        await _plain()
        await _end_of_reader()
        await _errors(evenlane_in_thread)
        await _a_terminal(world)
        await _switching(world, source)


async def _json(evenlane_in_thread):
    code, out, err = await evenlane_in_thread("top", "--json", "--project", "acme")
    assert (0, "") == (code, err)
    reported = json.loads(out)
    assert [("acme", "quota", 0.01, 5)] == [
        tuple(tenant[key] for key in ("project", "reason", "qps", "backlog")) for tenant in reported["tenants"]
    ]
    assert ["node-a"] == [node["id"] for node in reported["nodes"]]


async def _plain():
    """Two tables of complete lines without escape codes."""
    code, out, err = await evenlane("top", "--count", "2", "--interval", "0.5s", "--sort", "name")
    assert (0, "", False) == (code, err, "\x1b" in out)
    first, second = out.split("\n\n")
    for page in (first, second):
        lines = page.splitlines()
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z \w+: 1 node, 2 projects, \d wait, ", lines[0])
        assert ["acme", "bolt", "node-a*"] == [line.split()[0] for line in lines if line.startswith(("a", "b", "n"))]
    code, out, _ = await evenlane("top", "--once", "--limit", "1", "--totals")
    assert (0, 1) == (code, out.count("\nacme "))
    assert "\n1 more of these\n" in out


async def _end_of_reader():
    """A closed pipe and Ctrl-C: no message, exit code 0."""
    for ending in ("close", "interrupt"):
        process = await asyncio.create_subprocess_exec(
            *_COMMAND, "--interval", "0.5s", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        await process.stdout.readline()
        if ending == "close":
            process.stdout._transport.close()
        else:
            process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert (ending, b"") == (ending, await process.stderr.read())
        assert (ending, 0) == (ending, await process.wait())


async def _errors(evenlane_in_thread):
    """Errors that are found only by asking servers."""
    for arguments, code, sentence in (
        (["--json", "--priority", "urgent"], 2, "priority 'urgent' is not one of this cluster's: high, mid, low"),
        (["--env", "nowhere", "--json"], 1, "environment 'nowhere' does not exist"),
        (["--etcd", "127.0.0.1:1", "--json"], 1, "etcd at 127.0.0.1:1 does not answer"),
    ):
        found, out, err = await evenlane_in_thread("top", *arguments)
        assert (code, "", 1) == (found, out, err.count("\n"))
        assert sentence in err


class Terminal:
    """A pseudo terminal of 80 x 24 that runs the command; `seen` is its output."""

    def __init__(self, code: str = CODE) -> None:
        self.code = code
        self.ours, self.its = pty.openpty()
        fcntl.ioctl(self.its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.its)
        self.seen = b""

    async def __aenter__(self):
        environ = os.environ | {"TERM": "xterm-256color"}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", self.code, "top", "--interval", "0.5s",
            stdin=self.its, stdout=self.its, stderr=self.its, env=environ,
        )  # fmt: skip
        asyncio.get_running_loop().add_reader(self.ours, self._read)
        return self

    async def __aexit__(self, *_):
        asyncio.get_running_loop().remove_reader(self.ours)
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        os.close(self.ours)
        os.close(self.its)

    def _read(self):
        self.seen += os.read(self.ours, 65_536)

    async def shows(self, text):
        await until(lambda: text.encode() in self.seen, 40, f"{text!r} in the terminal")

    def types(self, keys):
        os.write(self.ours, keys.encode())

    async def is_restored(self, code=0):
        """Wait for the end without a traceback, and with the terminal's modes, screen and cursor restored."""
        assert code == await asyncio.wait_for(self.process.wait(), 40)
        await until(lambda: b"\x1b[?1049l" in self.seen and b"\x1b[?25h" in self.seen)
        assert self.before == termios.tcgetattr(self.its)
        assert b"Traceback" not in self.seen


async def _a_terminal(world):
    """Two keys pause a tenant; `q`, a signal or an unexpected error ends it, and the terminal is restored."""
    async with Terminal() as terminal:
        await terminal.shows("acme")
        await terminal.shows("node-a*")
        assert self_drawn(terminal)
        terminal.types("p")
        await terminal.shows("Stop handling messages of acme?")
        terminal.types("y")
        await terminal.shows("acme: paused, accepted")
        stored = await world.etcd.get(names.key(world.settings.env, "topics", "acme"))
        assert "paused" == json.loads(stored.value)["state"]
        terminal.types("q")
        await terminal.is_restored()
    async with Terminal() as terminal:
        await terminal.shows("acme")
        terminal.process.send_signal(signal.SIGTERM)
        await terminal.is_restored()
    async with Terminal(_BROKEN) as terminal:
        await terminal.is_restored(1)
        assert b"evenlane: unexpected ZeroDivisionError: division by zero; this is a defect" in terminal.seen


def self_drawn(terminal):
    """Whether the program controls the terminal: no echo, the alternate screen."""
    return terminal.before != termios.tcgetattr(terminal.its) and b"\x1b[?1049h" in terminal.seen


async def _switching(world, source):
    """The history has the author of a change; a draining topic is not changed."""
    await world.topics("coil", state="draining")
    assert "acme: active, accepted" == await source.switch("acme", "resume")
    with pytest.raises(EvenlaneError, match="topic coil is draining: `evenlane topics pause coil` changes that"):
        await source.switch("coil", "pause")
    with pytest.raises(EvenlaneError, match="has no topic"):
        await source.switch("nobody", "pause")
    assert "quota" == (await source.why("bolt"))["priorities"][1]["reasons"][0]["reason"]
    (entry, *_) = (await world.etcd.list(names.key(world.settings.env, "history", "acme", ""))).items[-1:]
    assert ("somebody", "top: resume") == tuple(json.loads(entry.value)[key] for key in ("by", "via"))
