"""Supervisor of `--processes N`: starts nodes as processes, restarts them, and ends them.

Each node is `evenlane run` in a session of its own, so that a terminal's Ctrl-C only reaches the supervisor, which
sends one SIGTERM to each. Nodes share stdout and stderr with it. For their end with the supervisor see lifeline.py; for
the leases of a dead node see lease_revoker.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Self

import structlog
import typer

from evenlane.engine.base import names
from evenlane.engine.cli.errors import FAILED, WRONG_USE
from evenlane.engine.cli.run.claims import FLAG as CLAIMS
from evenlane.engine.cli.run.claims import ProcessClaims, create_shared_memory, read_claims
from evenlane.engine.cli.run.lifeline import FLAG, KILL_AFTER_S, NodeReady, parse_message
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.runtime.embedded.child import wait_for_exit

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    _OnReady = Callable[[Mapping[str, NodeReady]], Coroutine[object, object, None]]
    Revoke = Callable[[str, ProcessClaims], Coroutine[object, object, None]]

_log = structlog.get_logger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
_FAREWELL_S = 3.0  # time limit for revoking leases at the end
_LAST_WORDS_S = 1.0  # for reading a node's last messages after its end; its own children may hold the line
# -P: the working directory must not be searched first, where a user's module could shadow an installed one.
_PROGRAM = (sys.executable, "-P", "-c", "from evenlane.engine.cli.main import main; main()", "run")


def pause_after(last_s: float, ready_s: float) -> float:
    """Return the seconds before a node that was ready for `ready_s` is restarted; `last_s` was the previous pause.

    The pause doubles from 1 s to 30 s, and is reset after a minute of service.
    """
    if not last_s or ready_s >= STEADY_S:
        return FIRST_PAUSE_S
    return min(2 * last_s, LONGEST_PAUSE_S)


def describe_exit(code: int) -> str:
    """Describe a child's exit code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def arguments(flags: Mapping[str, object]) -> list[str]:
    """Return the arguments of `evenlane run`; a flag that is None was not given."""
    given = [f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items() if value is not None]
    return [*given, *(["--debug"] if "--debug" in sys.argv else [])]


def node_command(arguments: Sequence[str]) -> list[str]:
    """Return the command of a node's process."""
    return [*_PROGRAM, *arguments]


class ChildProcess:
    """One process, from its start to its end."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._line, theirs = socket.socketpair()
        self._claims = create_shared_memory()
        passed = theirs.fileno(), self._claims
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - runs this very program
                    [*command, f"{FLAG}={passed[0]}", f"{CLAIMS}={passed[1]}"],
                    stdin=subprocess.DEVNULL,
                    env=environ,
                    start_new_session=True,
                    pass_fds=passed,
                )
            except OSError:
                self._close()
                raise
        self._ready_at: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process without await, so that nothing can be left behind."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self._line.close()
        os.close(self._claims)

    @property
    def ready_s(self) -> float:
        """Seconds since it became ready; 0 if it never did."""
        return 0.0 if self._ready_at is None else asyncio.get_running_loop().time() - self._ready_at

    async def listen(self, on_message: Callable[[NodeReady | None], None]) -> None:
        """Call `on_message` with the node's messages, until its end."""
        reader, writer = await asyncio.open_connection(sock=self._line.dup())
        try:
            while line := await reader.readline():
                ready = parse_message(line)
                if ready is not None:
                    self._ready_at = asyncio.get_running_loop().time()
                on_message(ready)
        finally:
            writer.close()

    async def wait_for_end(self) -> int:
        """Wait for the end of the process; return the exit code, or minus the signal's number."""
        return await wait_for_exit(self._process)

    def read_claims(self) -> ProcessClaims:
        """Return its claims. After `wait_for_end` or `stop_within` they are final: the kernel reports an exit status
        once the last thread has ended, and none for a process that is only stopped (SIGSTOP).
        """
        return read_claims(self._claims)

    async def stop_within(self, within_s: float) -> int:
        """End the process in order, and kill it if it still runs after `within_s`. Returns the exit code."""
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)  # a process under SIGSTOP doesn't receive SIGTERM
        try:
            async with asyncio.timeout(within_s):
                return await self.wait_for_end()
        except TimeoutError:
            self._process.kill()
            return await self.wait_for_end()


class Supervisor:
    """Keeps the nodes `<name>-0` to `<name>-<count - 1>` alive until `stop`. `arguments` are those of `evenlane run`
    without the node's name; `environ` is added to this process's environment; `drain_grace_s` is the time that a node's
    drain may take. Each node serves HTTP on one of `http_ports`, if there are any. `revoke` ends the leases of a dead
    node: see Revoker. Raises InvalidName.
    """

    def __init__(
        self,
        name: str,
        count: int,
        arguments: Sequence[str],
        *,
        drain_grace_s: float,
        environ: Mapping[str, str] | None = None,
        http_ports: Sequence[int] = (),
        revoke: Revoke | None = None,
    ) -> None:
        self._http = [[f"--http-port={port}"] for port in http_ports] or [[]] * count
        self._ids = [names.check_node(f"{name}-{number}") for number in range(count)]
        self._command = node_command(arguments)
        self._environ = os.environ | (environ or {})
        self._stop_within_s = drain_grace_s + KILL_AFTER_S
        self._stop = asyncio.Event()
        self._joined = asyncio.Event()
        self._all_ready = asyncio.Event()
        self._ready: dict[str, NodeReady] = {}
        self._failure: Exception | None = None
        self._revoke = revoke
        self._revoking: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Make `run` return after all nodes have drained."""
        self._stop.set()

    async def run(self, on_ready: _OnReady) -> bool:
        """Run until `stop`. Returns True if all nodes ended clean. `on_ready` is awaited once, when all nodes are
        ready.

        A node that ends after that is restarted. So is a node that dies at work before, as a message may have killed
        it. For any other end before, the other nodes are ended first, then EvenlaneError is raised. If the first node
        reports wrong use, the supervisor exits with the same code, as the node has printed the reason.
        """
        nodes = [asyncio.create_task(self._keep(node), name=node) for node in self._ids]
        notifying = asyncio.create_task(self._notify_when_ready(on_ready))
        try:
            await asyncio.wait({notifying, *nodes}, return_when=asyncio.FIRST_EXCEPTION)
            self.stop()
            clean = await asyncio.gather(*nodes)
            await notifying
            if self._revoking:
                await asyncio.wait(self._revoking, timeout=_FAREWELL_S)
        finally:
            for task in (notifying, *nodes, *self._revoking):
                task.cancel()
            await asyncio.gather(notifying, *nodes, *self._revoking, return_exceptions=True)
        if self._failure is not None:
            raise self._failure
        return all(clean)

    async def _notify_when_ready(self, on_ready: _OnReady) -> None:
        if not await self._run_until_stop(self._all_ready.wait()):
            await self._run_until_stop(on_ready({node: self._ready[node] for node in self._ids}))

    async def _keep(self, node: str) -> bool:
        """Run a node repeatedly; return whether its last process ended clean."""
        # The first node starts alone, so that errors in settings, handler or cluster are reported once.
        if node != self._ids[0] and await self._run_until_stop(self._joined.wait()):
            return True
        pause_s = 0.0
        while True:
            code, ready_s, died = await self._life(node)
            clean = code == 0 and not died  # a handler may have called os._exit(0)
            if self._stop.is_set():
                return clean or (code == -signal.SIGTERM and not ready_s)
            if node not in self._ready and not died:
                self._fail(node, code)
                return False
            pause_s = pause_after(pause_s, ready_s)
            _log.warning("a node has ended: it is started again", node=node, ended=describe_exit(code), after_s=pause_s)
            if await self._run_until_stop(asyncio.sleep(pause_s)):
                return clean

    async def _life(self, node: str) -> tuple[int, float, bool]:
        """Run one process. Returns its exit code, how many seconds the node was ready, and whether it died at work. A
        node that died at work still has its lease; a node that found an error has revoked it. A process that can't be
        started for lack of resources counts as failed.
        """
        try:
            own = [f"--node={node}", *self._http[self._ids.index(node)]]
            with ChildProcess([*self._command, *own], self._environ) as life:
                code = await self._live(node, life)
                return code, life.ready_s, bool(life.read_claims().leases)
        except OSError as error:
            _log.warning("a node can't be started", node=node, error=str(error))
            return FAILED, 0.0, False

    async def _live(self, node: str, life: ChildProcess) -> int:
        """Wait for the end of this process, by itself or by `stop`; return its exit code."""
        listening = asyncio.create_task(life.listen(lambda ready: self._on_message(node, ready)))
        try:
            if not await self._run_until_stop(life.wait_for_end()):
                self._on_exit(node, life)
                await asyncio.wait({listening}, timeout=_LAST_WORDS_S)
                return await life.wait_for_end()
            code = await life.stop_within(self._stop_within_s)
            self._on_exit(node, life)
            return code
        finally:
            listening.cancel()

    def _on_exit(self, node: str, life: ChildProcess) -> None:
        """Revoke the leases of a process that has ended. A process that ended in order has none left."""
        claims = life.read_claims()
        if claims.leases and self._revoke is not None:
            task = asyncio.create_task(self._revoke(node, claims), name=f"revoke {node}")
            self._revoking.add(task)
            task.add_done_callback(self._revoking.discard)

    def _on_message(self, node: str, ready: NodeReady | None) -> None:
        self._joined.set()
        if ready is not None:
            self._ready[node] = ready
        if len(self._ready) == len(self._ids):
            self._all_ready.set()

    def _fail(self, node: str, code: int) -> None:
        """Stop all nodes, as this one ended before it ever was ready, and would do so again."""
        if self._failure is None:
            is_wrong_use = code == WRONG_USE and not self._joined.is_set()
            self._failure = (
                typer.Exit(WRONG_USE)
                if is_wrong_use
                else EvenlaneError(f"node {node} ended with {describe_exit(code)} before it was ready")
            )
        self.stop()

    async def _run_until_stop(self, work: Coroutine[object, object, object]) -> bool:
        """Return whether `stop` came before the end of `work`, which is then cancelled."""
        working, stopping = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            stopping.cancel()
        if working.done():
            working.result()
        return self._stop.is_set()
