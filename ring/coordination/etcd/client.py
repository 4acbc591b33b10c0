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
    explain_certificate,
    explain_closed,
    explain_error,
    is_certificate_refused,
    is_token_stale,
    is_unavailable,
)
from evenlane.ring.coordination.etcd.connection import Connection
from evenlane.ring.coordination.etcd.fork_gate import ForkGate
from evenlane.ring.coordination.etcd.messages import Paging, delete_request, key_value, put_request, txn_request
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
        self._gate = ForkGate() if may_fork else None
        self._connection = Connection(self._address, self._gate)
        self._has_answered = False
        self._watches: set[EtcdWatch] = set()

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
        if self._connection.is_closed:
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
        self._connection.refuse_calls()
        await asyncio.gather(*(watch.aclose() for watch in tuple(self._watches)))
        await self._connection.close()

    async def _unary(self, stub: str, method: str, request: Any) -> Any:
        def ask(client: etcd3.Etcd3Client) -> Any:
            call = getattr(getattr(client, stub), method)
            return call(request, self._address.deadline_s, metadata=client.metadata)

        return await self._call(ask)

    async def _call(self, ask: _Ask[T]) -> T:
        """Carry out one call; with a fresh login, once, if the present one has expired."""
        client = await self._connection.get()
        try:
            return await self._try_once(ask, client)
        except grpc.RpcError as error:
            if not is_token_stale(error):
                raise await self._explain(error) from error
        self._connection.retire(client)
        try:
            return await self._try_once(ask, await self._connection.get())
        except grpc.RpcError as error:
            raise await self._explain(error) from error

    async def _explain(self, error: grpc.RpcError) -> CoordinationError:
        if not is_certificate_refused(error):
            return explain_error(self._address, error, has_answered=self._has_answered)
        return await self._connection.run(lambda: explain_certificate(self._address, error))

    async def _try_once(self, ask: _Ask[T], client: etcd3.Etcd3Client) -> T:
        try:
            answer = await self._connection.run(lambda: ask(client), client)
        except grpc.RpcError as error:
            # A hanging member keeps its connection, and its turn in the round-robin; a fresh client won't use it.
            hangs = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and len(self._address.endpoints) > 1
            # A connection uses the certificates that it has read at first.
            if hangs or (is_unavailable(error) and self._connection.has_new_files()):
                self._connection.retire(client)
            elif is_unavailable(error):
                self._connection.follow(client)
            raise
        except ValueError as error:  # the channel was closed meanwhile
            raise explain_closed(self._address) from error
        self._has_answered = True
        return answer
