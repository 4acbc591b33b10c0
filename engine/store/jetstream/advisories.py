"""Follows what the servers announce about streams: another leader, or another config."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.engine.store.jetstream.client.connection import Connection
    from evenlane.engine.store.jetstream.feed import JetStreamFeed
    from evenlane.engine.store.jetstream.reads import Reads


class StreamAdvisories:
    """`elections` counts leaders elected since `follow`. A feed whose stream has another leader is replaced: consumers
    on other servers lag, and that of the old leader may be gone with it.
    """

    def __init__(self, reads: Reads, feeds: Collection[JetStreamFeed]) -> None:
        self._reads, self._feeds = reads, feeds
        self.elections = 0

    def follow(self, connection: Connection) -> None:
        connection.listen("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*", self._on_election)
        connection.listen("$JS.EVENT.ADVISORY.STREAM.UPDATED.*", self._on_update)

    def _on_election(self, subject: bytes, _reply: bytes, _headers: bytes, _body: bytes) -> None:
        self.elections += 1
        for feed in self._feeds:
            if feed.stream == _stream(subject):
                feed.disturb("its stream has another leader")

    def _on_update(self, subject: bytes, _reply: bytes, _headers: bytes, _body: bytes) -> None:
        self._reads.forget_replicas(_stream(subject))


def _stream(subject: bytes) -> str:
    return subject.rpartition(b".")[2].decode(errors="replace")
