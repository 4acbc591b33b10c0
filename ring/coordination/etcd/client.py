"""The coordination port on etcd, with the client etcd3.

Each call blocks a thread of its own: no call waits for another one, and each has its deadline from the moment it is
made. Cancelling an `await` gives the call up; etcd may still carry it out. gRPC's own futures aren't used, because they
need threads of gRPC: these are started on the event loop, and one that dies at its start would block it.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from evenlane.ring.coordination.etcd.channel import (
    Address,
    connect,
    disconnect,
    disconnect_later,
    explain_certificate,
    explain_closed,
    explain_error,
    explain_exhausted,
    is_certificate_refused,
    is_token_stale,
    is_unavailable,
    silent,
)
from evenlane.ring.coordination.etcd.fork_gate import ForkGate
from evenlane.ring.coordination.etcd.messages import Paging, delete_request, key_value, put_request, txn_request
from evenlane.ring.coordination.etcd.threads import run_in_thread
from evenlane.ring.coordination.etcd.watch import EtcdWatch
from evenlane.ring.coordination.ports import (
    Compare,
    CoordinationError,
    KeyValue,
    LeaseGone,
    Listing,
    Op,
    TxnResult,
    Unavailable,
)

import etcd3  # isort: skip - after evenlane.ring.coordination.etcd.channel, which makes it importable
import grpc  # isort: skip

_rpc = etcd3.etcdrpc
_LISTING_TRIES = 3

T = TypeVar("T")
_Ask: TypeAlias = Callable[[etcd3.Etcd3Client], T]


class EtcdCoordination:
    """`evenlane.ring.coordination.ports.Coordination` on an etcd of one or more members.

    `endpoints` are `HOST:PORT`; `deadline_s` bounds every call. Connects on the first call. With `may_fork`, the
    process may fork: a call under way at the fork fails with Unavailable. `resolve` returns the IPv4 address of a host.
    Raises ValueError for an invalid endpoint.

    `password` may be a function, which is called at each login; it may raise CoordinationError. Certificates are read
    again if their files have changed and a connection fails. `read_expiry` returns the date, as text, on which a
    certificate in PEM has expired; None if it has not.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        user: str | None = None,
        password: str | Callable[[], str | None] | None = None,
        ca_cert: str | None = None,
        cert_key: str | None = None,
        cert_cert: str | None = None,
        deadline_s: float = 2.0,
        may_fork: bool = False,
        read_expiry: Callable[[str], str | None] = lambda _pem: None,
        resolve: Callable[[str], str] = socket.gethostbyname,
    ) -> None:
        self._address = Address(
            tuple(endpoints), user, password, ca_cert, cert_key, cert_cert, deadline_s, read_expiry, resolve
        )
        self._target = ""  # of the present client, or the last one
        self._following: asyncio.Task[None] | None = None
        self._client: etcd3.Etcd3Client | None = None
        self._files: tuple[object, ...] = ()  # the state of the certificates' files that the client uses
        self._was_connected = False
        self._connecting: asyncio.Future[None] | None = None
        self._watches: set[EtcdWatch] = set()
        self._is_closed = False
        self._gate = ForkGate() if may_fork else None
        if self._gate is not None:
            self._gate.on_fork.add(self._disconnect)

    async def get(self, key: str) -> KeyValue | None:
        reply = await self._unary("kvstub", "Range", _rpc.RangeRequest(key=key.encode()))
        return key_value(reply.kvs[0]) if reply.kvs else None

    async def list(self, prefix: str) -> Listing:
        for attempt in range(_LISTING_TRIES):
            try:
                return await self._list(prefix)
            except CoordinationError as error:
                # Between two pages, the first one's revision was compacted away.
                if "compacted" not in str(error) or attempt + 1 == _LISTING_TRIES:
                    raise
        raise AssertionError("not reached")

    async def _list(self, prefix: str) -> Listing:
        paging = Paging(prefix)
        while not paging.complete:
            paging.add_page(await self._unary("kvstub", "Range", paging.request()))
        return paging.listing()

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        reply = await self._unary("kvstub", "Put", put_request(key, value, lease))
        return int(reply.header.revision)

    async def delete(self, key: str) -> bool:
        reply = await self._unary("kvstub", "DeleteRange", delete_request(key))
        return bool(reply.deleted)

    async def txn(self, compare: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> TxnResult:
        reply = await self._unary("kvstub", "Txn", txn_request(compare, then, otherwise))
        return TxnResult(reply.succeeded, reply.header.revision)

    async def grant(self, ttl_s: int) -> int:
        reply = await self._unary("leasestub", "LeaseGrant", _rpc.LeaseGrantRequest(TTL=ttl_s))
        return int(reply.ID)

    async def keep_alive(self, lease: int) -> int:
        def ask(client: etcd3.Etcd3Client) -> int:
            requests = iter([_rpc.LeaseKeepAliveRequest(ID=lease)])
            for reply in client.leasestub.LeaseKeepAlive(requests, self._address.deadline_s, metadata=client.metadata):
                return int(reply.TTL)
            raise Unavailable(f"etcd at {self._address} does not answer: the stream ended without a reply")

        return await self._call(ask)

    async def lease_keys(self, lease: int) -> frozenset[str] | None:
        reply = await self._unary("leasestub", "LeaseTimeToLive", _rpc.LeaseTimeToLiveRequest(ID=lease, keys=True))
        if reply.TTL < 0:  # (0 is less than a second)
            return None
        return frozenset(key.decode(errors="replace") for key in reply.keys)

    async def revoke(self, lease: int) -> None:
        with contextlib.suppress(LeaseGone):
            await self._unary("leasestub", "LeaseRevoke", _rpc.LeaseRevokeRequest(ID=lease))

    def watch(self, prefix: str, *, exact: bool = False) -> EtcdWatch:
        if self._is_closed:
            raise explain_closed(self._address)
        watch = EtcdWatch(self._address, prefix, self._watches.discard, gate=self._gate, exact=exact)
        self._watches.add(watch)
        return watch

    async def status(self) -> str:
        # Any member reports its version, even one cut off from the others; the read needs a quorum.
        try:
            await self._unary("kvstub", "Range", _rpc.RangeRequest(key=b"\0", count_only=True))
        except CoordinationError as error:
            if "permission denied" not in str(error):  # checked after the quorum was reached
                raise
        reply = await self._unary("maintenancestub", "Status", _rpc.StatusRequest())
        return str(reply.version)

    async def close(self) -> None:
        self._is_closed = True
        if self._following is not None:
            self._following.cancel()
        await asyncio.gather(*(watch.aclose() for watch in tuple(self._watches)))
        if self._gate is not None:
            self._gate.on_fork.discard(self._disconnect)
        if self._client is not None:
            await asyncio.to_thread(disconnect, self._client)

    async def _unary(self, stub: str, method: str, request: Any) -> Any:
        def ask(client: etcd3.Etcd3Client) -> Any:
            call = getattr(getattr(client, stub), method)
            return call(request, self._address.deadline_s, metadata=client.metadata)

        return await self._call(ask)

    async def _call(self, ask: _Ask[T]) -> T:
        """Carry out one call; with a fresh login, once, if the present one has expired."""
        client = await self._get_client()
        try:
            return await self._try_once(ask, client)
        except grpc.RpcError as error:
            if not is_token_stale(error):
                raise await self._explain(error) from error
        self._retire(client)
        try:
            return await self._try_once(ask, await self._get_client())
        except grpc.RpcError as error:
            raise await self._explain(error) from error

    async def _explain(self, error: grpc.RpcError) -> CoordinationError:
        if not is_certificate_refused(error):
            return explain_error(self._address, error)
        return await self._run(lambda: explain_certificate(self._address, error))

    async def _try_once(self, ask: _Ask[T], client: etcd3.Etcd3Client) -> T:
        try:
            return await self._run(lambda: ask(client), client)
        except grpc.RpcError as error:
            # A hanging member keeps its connection, and its turn in the round-robin; a fresh client won't use it.
            hangs = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and len(self._address.endpoints) > 1
            # A connection uses the certificates that it has read at first.
            if hangs or (is_unavailable(error) and self._address.stamp_files() != self._files):
                self._retire(client)
            elif error.code() is grpc.StatusCode.UNAVAILABLE and self._following is None and not self._is_closed:
                self._following = asyncio.create_task(self._follow(client), name="addresses of etcd")
            raise
        except ValueError as error:  # the channel was closed meanwhile
            raise explain_closed(self._address) from error

    async def _follow(self, client: etcd3.Etcd3Client) -> None:
        """Replace the client if the members' names have other addresses by now: gRPC has those of the time when it was
        made. The call that has failed doesn't wait for that, as a name server may be slow.
        """
        try:
            if await run_in_thread(self._address.target) != self._target:
                self._retire(client)
        except (CoordinationError, RuntimeError):
            pass  # no address is known, or no thread can be started: the next call that fails tries again
        finally:
            self._following = None

    async def _run(self, call: Callable[[], T], client: etcd3.Etcd3Client | None = None) -> T:
        try:
            return await self._await_answer(run_in_thread(call), client)
        except RuntimeError as error:  # no thread can be started, by us or by gRPC
            raise explain_exhausted(self._address, error) from error

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
                self._retire(client)
        if call.cancelled():
            raise silent(self._address)
        return call.result()

    async def _get_client(self) -> etcd3.Etcd3Client:
        if self._client is None and not self._is_closed:
            if self._connecting is None:
                self._connecting = asyncio.ensure_future(self._connect())
                self._connecting.add_done_callback(_retrieve)
            try:
                # All callers share one attempt, and none waits longer than its own deadline.
                async with asyncio.timeout(self._address.deadline_s):
                    await asyncio.shield(self._connecting)
            except TimeoutError:
                raise silent(self._address) from None
        if self._client is None or self._is_closed:
            raise explain_closed(self._address)
        return self._client

    async def _connect(self) -> None:
        try:
            await self._run(self._connect_now)
        finally:
            self._connecting = None

    def _connect_now(self) -> None:
        with self._gate or contextlib.nullcontext():
            files, self._target = self._address.stamp_files(), self._address.target()
            client = connect(self._address, self._target, is_again=self._was_connected)
            self._was_connected = True
            if not self._is_closed:
                self._client, self._files = client, files
        if self._is_closed:
            self._client = None
            disconnect_later(client, 0.0)

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            disconnect(client)

    def _retire(self, client: etcd3.Etcd3Client) -> None:
        """Replace the client, and close it once its other calls have ended."""
        if self._client is not None and self._client is client:
            self._client = None
            disconnect_later(client, self._address.deadline_s)


def _retrieve(done: "asyncio.Future[None]") -> None:
    """Retrieve the error: asyncio would log it if no caller is left that waits."""
    if not done.cancelled():
        done.exception()
