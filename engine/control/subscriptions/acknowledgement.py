"""Makes sure that nobody removes messages by an older registry: all owners follow the new one, and nobody else can
become one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.base.plural import format_count
from evenlane.engine.control.subscriptions.first_records import find_unmarked, mark_logs
from evenlane.engine.control.subscriptions.living_nodes import describe_nodes, name_some
from evenlane.engine.control.subscriptions.remover_watch import RemoverWatch
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.control.subscriptions.remover_watch import RemoverState
    from evenlane.engine.core.ports import Store
    from evenlane.ring.coordination.ports import Coordination

_POLL_S = 0.2


class OlderReleaseFound(Exception):
    """There are nodes of an older release, which follow no registry."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = nodes
        super().__init__(nodes)


class NotAcknowledged(Exception):
    """Some owners haven't followed the registry in time; `who` names them in a sentence, up to the verb."""

    def __init__(self, found: RemoverState) -> None:
        late = sorted({*found.late.values()} - {""})
        of = sorted(partition for partition, node in found.late.items() if not node)
        owners = f"the owner of {format_count(len(of), 'partition')} ({name_some(of)})"
        who = " and ".join([*([describe_nodes(late)] if late else []), *([owners] if of else [])])
        has = "hasn't" if len(late) + bool(of) == 1 else "haven't"
        self.who = f"{who} {has}"
        super().__init__(self.who)


class Acknowledgement:
    """Waits for the acknowledgement of a registry by those who remove messages, each time for at most `limit_s`."""

    def __init__(self, coordination: Coordination, env: str, partitions: int, store: Store, limit_s: float) -> None:
        self._env, self._partitions, self._store, self._limit_s = env, range(partitions), store, limit_s
        self._removers = RemoverWatch(coordination, env, partitions)

    async def wait(self, revision: int, marked: frozenset[int] = frozenset()) -> frozenset[int]:
        """Wait until nobody removes messages by a registry before `revision`, and nobody can begin to: each settle log
        says that there is a registry. Its owner writes that; the logs of partitions without an owner are marked.
        `marked` are those of before, and the result those of now.

        An older node may have come after the owner keys were read, so all is looked at again after each mark. An owner
        may end before it has written anything, so that the logs themselves are read at last. Raises OlderReleaseFound,
        NotAcknowledged, Lost, Refused, CoordinationError.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._limit_s
        while True:
            found = await self._removers.wait(revision, self._limit_s)
            if found.older:
                raise OlderReleaseFound(found.older)
            if found.late:
                raise NotAcknowledged(found)
            if missing := found.unowned - marked:
                marked |= missing - await mark_logs(self._store, missing)
                continue
            unmarked = await find_unmarked(self._store, names.cluster_name(self._env), self._partitions)
            if not unmarked:
                return marked
            if loop.time() >= end:
                raise NotAcknowledged(found._replace(late=dict.fromkeys(unmarked, "")))
            marked -= unmarked
            await asyncio.sleep(_POLL_S)


def older_release(env: str, nodes: Sequence[str], effect: str) -> EvenlaneError:
    """The error for nodes of an older release; `effect` is what they would do."""
    runs = "runs an older release" if len(nodes) == 1 else "run older releases"
    return EvenlaneError(
        f"{describe_nodes(nodes)} of environment {env!r} {runs}, which would {effect}: update all nodes first"
    )
