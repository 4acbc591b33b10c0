"""The connection that all calls of one client share: made at the first call, and replaced when it no longer serves."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from evenlane.ring.coordination.etcd.channel import (
    Address,
    connect,
    disconnect,
    disconnect_later,
    explain_closed,
    explain_exhausted,
    silent,
)
from evenlane.ring.coordination.etcd.fork_gate import ForkGate
from evenlane.ring.coordination.etcd.threads import run_in_thread
from evenlane.ring.coordination.ports import CoordinationError

import etcd3  # isort: skip - after evenlane.ring.coordination.etcd.channel, which makes it importable

T = TypeVar("T")


class Connection:
    """The present connection to `address`. With `gate`, the process may fork: the connection is closed before.

    An attempt to connect that nobody waits for any more may still succeed, in its thread. It becomes the present one
    only if there is none; otherwise it is closed.

    Invariants: every connection is the present one, in `_retired`, or closed. `_installing` is held while the
    present one is set, and while `is_closed` is.
    """

    def __init__(self, address: Address, gate: ForkGate | None) -> None:
        self._address, self._gate = address, gate
        self._target = ""  # of the present client, or the last one
        self._client: etcd3.Etcd3Client | None = None
        self._files: tuple[object, ...] = ()  # the state of the certificates' files that the client uses
        self._was_connected = False
        self._retired: list[etcd3.Etcd3Client] = []  # for whose end no thread could be started yet
        self._connecting: asyncio.Future[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._installing = threading.Lock()
        self.is_closed = False
        if gate is not None:
            gate.on_fork.add(self._disconnect)

    async def get(self) -> etcd3.Etcd3Client:
        """Return the present client; connect if there is none. Raises CoordinationError, Unavailable."""
        if self._client is None and not self.is_closed:
            if self._connecting is None:
                self._connecting = asyncio.ensure_future(self._connect())
                self._connecting.add_done_callback(_retrieve)
            try:
                # All callers share one attempt, and none waits longer than its own deadline.
                async with asyncio.timeout(self._address.deadline_s):
                    await asyncio.shield(self._connecting)
            except TimeoutError:
                raise silent(self._address) from None
        if self._client is None or self.is_closed:
            raise explain_closed(self._address)
        return self._client

    async def run(self, call: Callable[[], T], client: etcd3.Etcd3Client | None = None) -> T:
        """Carry out a blocking call, which may use `client`, in a thread of its own. Raises Unavailable."""
        try:
            return await self._await_answer(run_in_thread(call), client)
        except RuntimeError as error:  # no thread can be started, by us or by gRPC
            raise explain_exhausted(self._address, error) from error

    def retire(self, client: etcd3.Etcd3Client) -> None:
        """Replace the client, and close it once its other calls have ended."""
        if self._client is not None and self._client is client:
            self._client = None
            self._retired.append(client)
            self._close_retired()

    def has_new_files(self) -> bool:
        """Whether the certificates' files have changed since the present client read them, or the last one did."""
        return self._address.stamp_files() != self._files

    def follow(self, client: etcd3.Etcd3Client) -> None:
        """Replace the client, in the background, if the members' names have other addresses by now."""
        if self._following is None and not self.is_closed:
            self._following = asyncio.create_task(self._follow(client), name="addresses of etcd")

    def refuse_calls(self) -> None:
        """Let all further calls fail. `close` follows."""
        with self._installing:
            self.is_closed = True
        if self._following is not None:
            self._following.cancel()

    async def close(self) -> None:
        """Close; after `refuse_calls`. Waits for gRPC's threads, for at most 2 s."""
        if self._gate is not None:
            self._gate.on_fork.discard(self._disconnect)
        self._close_retired()
        if self._client is not None:
            with contextlib.suppress(RuntimeError):  # no thread can be started: the connection ends with the process
                await asyncio.to_thread(disconnect, self._client)

    async def _follow(self, client: etcd3.Etcd3Client) -> None:
        # gRPC has the addresses of the time when it was made. The call that has failed doesn't wait for the new ones,
        # as a name server may be slow.
        try:
            if await run_in_thread(self._address.target) != self._target:
                self.retire(client)
        except (CoordinationError, RuntimeError):
            pass  # no address is known, or no thread can be started: the next call that fails tries again
        finally:
            self._following = None

    async def _await_answer(self, call: "asyncio.Future[T]", client: etcd3.Etcd3Client | None) -> T:
        """Wait for the answer; gRPC keeps the deadline. If a handler has used up the memory, one of the client's
        threads may have died at its start, and no answer comes: replace the client then. Raises Unavailable.
        """
        try:
            done, _ = await asyncio.wait({call}, timeout=2 * self._address.deadline_s)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if not done:
            call.cancel()
            if client is not None:
                self.retire(client)
        if call.cancelled():
            raise silent(self._address)
        return call.result()

    async def _connect(self) -> None:
        try:
            await self.run(self._connect_now)
        finally:
            self._connecting = None
        self._close_retired()

    def _connect_now(self) -> None:
        with self._gate or contextlib.nullcontext():
            files, target = self._address.stamp_files(), self._address.target()
            client = connect(self._address, target, is_again=self._was_connected)
            self._was_connected = True
            with self._installing:
                is_needed = self._client is None and not self.is_closed
                if is_needed:
                    self._client, self._files, self._target = client, files, target
        if not is_needed:
            client.close()  # may wait for gRPC's threads for ever: this thread is its own

    def _close_retired(self) -> None:
        """Close the replaced clients. If no thread can be started for it now, the next connection tries again."""
        with contextlib.suppress(RuntimeError):
            while self._retired:
                disconnect_later(self._retired[-1], self._address.deadline_s)
                self._retired.pop()

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            disconnect(client)


def _retrieve(done: "asyncio.Future[None]") -> None:
    """Retrieve the error: asyncio would log it if no caller is left that waits."""
    if not done.cancelled():
        done.exception()
