"""Converts the port's values to etcd's messages, and back."""

from collections.abc import Iterable
from typing import Any

from evenlane.ring.coordination.etcd.protos import install
from evenlane.ring.coordination.ports import Absent, Compare, CreatedAt, Event, HeldUnder, KeyValue, Listing, Op, PutKey

install()

from etcd3 import etcdrpc  # noqa: E402 - needs the stand-ins

_PAGE = 1_000  # keys per request, so that no reply takes longer than its deadline


class Paging:
    """A listing in pages, all as of the first one's revision. Used by calls and by watches."""

    def __init__(self, prefix: str, *, exact: bool = False) -> None:
        self._first = prefix.encode() or b"\0"
        self._end = b"" if exact else range_end(prefix)
        self._revision = 0
        self._items: list[KeyValue] = []
        self.complete = False

    def request(self) -> Any:
        return etcdrpc.RangeRequest(key=self._first, range_end=self._end, limit=_PAGE, revision=self._revision)

    def add_page(self, reply: Any) -> None:
        self._revision = self._revision or reply.header.revision
        self._items.extend(map(key_value, reply.kvs))
        self.complete = not reply.more
        if reply.more:
            self._first = reply.kvs[-1].key + b"\0"

    def listing(self) -> Listing:
        return Listing(self._revision, tuple(self._items))


def range_end(prefix: str) -> bytes:
    """The first key after all that begin with the prefix. UTF-8 has no byte 255, so there is no carry."""
    raw = prefix.encode()
    return raw[:-1] + bytes([raw[-1] + 1]) if raw else b"\0"


def key_value(stored: Any) -> KeyValue:
    """A key that isn't UTF-8 isn't ours; it is decoded with replacement characters."""
    return KeyValue(
        stored.key.decode(errors="replace"),
        stored.value,
        stored.create_revision,
        stored.mod_revision,
        stored.lease,
    )


def event(proto: Any) -> Event:
    return Event("delete" if proto.type == proto.DELETE else "put", key_value(proto.kv))


def put_request(key: str, value: bytes, lease: int) -> Any:
    return etcdrpc.PutRequest(key=key.encode(), value=value, lease=lease)


def delete_request(key: str) -> Any:
    return etcdrpc.DeleteRangeRequest(key=key.encode())


def watch_request(prefix: str, revision: int, *, exact: bool = False) -> Any:
    return etcdrpc.WatchRequest(
        create_request=etcdrpc.WatchCreateRequest(
            key=prefix.encode() or b"\0",
            range_end=b"" if exact else range_end(prefix),
            start_revision=revision,
            progress_notify=True,  # distinguishes a quiet stream from a dead one
        )
    )


def txn_request(compare: Iterable[Compare], then: Iterable[Op], otherwise: Iterable[Op]) -> Any:
    return etcdrpc.TxnRequest(compare=map(_build_compare, compare), success=map(_op, then), failure=map(_op, otherwise))


def _build_compare(compare: Compare) -> Any:
    kind, fields = etcdrpc.Compare, {"key": compare.key.encode(), "result": etcdrpc.Compare.EQUAL}
    if isinstance(compare, Absent):
        return kind(target=kind.CREATE, create_revision=0, **fields)
    if isinstance(compare, CreatedAt):
        return kind(target=kind.CREATE, create_revision=compare.revision, **fields)
    if isinstance(compare, HeldUnder):
        return kind(target=kind.LEASE, lease=compare.lease, **fields)
    return kind(target=kind.MOD, mod_revision=compare.revision, **fields)


def _op(op: Op) -> Any:
    if isinstance(op, PutKey):
        return etcdrpc.RequestOp(request_put=put_request(op.key, op.value, op.lease))
    return etcdrpc.RequestOp(request_delete_range=delete_request(op.key))
