"""The projects' topics: wishes in etcd, and the acceptor that puts them in force."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.proof.demo.plan import FACTS, WISH
from evenlane.ring.coordination.ports import Put as Write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from evenlane.ring.coordination.ports import Coordination

_AT_ONCE = 100  # keys in a transaction; etcd takes 128
_PATIENCE_S = 60.0


@asynccontextmanager
async def accepted(coordination: Coordination, env: str, projects: Sequence[str]) -> AsyncIterator[TopicCache]:
    """The topics of all projects, in force. Raises CoordinationError, UnknownProject."""
    facts = await agree_cluster_config(coordination, env, asdict(FACTS))
    acceptor, book = TopicController(coordination, env, facts, "demo"), TopicCache(coordination, env)
    try:
        await acceptor.start()
        await book.start()
        await _wish(coordination, env, projects)
        for project in projects:
            await book.wait_for(project, _PATIENCE_S)
        await acceptor.close()
        yield book
    finally:
        await acceptor.close()
        await book.close()


async def _wish(coordination: Coordination, env: str, projects: Sequence[str]) -> None:
    value = msgspec.json.encode(WISH)
    writes = [Write(names.key(env, "topics", project), value) for project in projects]
    for start in range(0, len(writes), _AT_ONCE):
        await coordination.txn([], writes[start : start + _AT_ONCE])
