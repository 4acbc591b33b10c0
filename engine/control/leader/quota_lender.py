"""Leader side of quota lending: rounds of questions and loans, as long as any topic is short on any node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.records.share_messages import (
    DURATION_S,
    EVERY_S,
    SOON_S,
    BorrowGrant,
    LendOrder,
    ShareConfirmation,
    ShareReport,
    ShareRequest,
    Shortage,
    decode_for_leader,
    to_all,
    to_leader,
    to_node,
)
from evenlane.engine.errors import EvenlaneError
from evenlane.quota.lending.rounds import LendingRounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.ring.coordination.ports import CreatedAt

_log = structlog.get_logger(__name__)

_OF_LEASE = 0.3  # longest loan, as a share of the lease TTL
_PAUSE_S = 1.0
_ANSWER_S = 0.15  # for the nodes' answers
_SOMEBODY = ""
_SECOND = 1_000_000_000
_MOST = 500  # topics per round, as a node answers within one turn of its loop; the next round takes the rest
_MOST_KNOWN = 20_000  # topics that wait for a round
_SILENT = 5  # rounds without an answer after which a node isn't waited for


class QuotaLender:
    """Lends quota while `serve(fence)` runs, on a connection of its own, made by `connect`.

    Invariants: `_epoch` is that of the present term, 0 outside one; `_rounds` belongs to the term `_rounds_of`.
    `_short` has the topics that wait for a round; `_last` has those of the last round.
    """

    def __init__(
        self, connect: Callable[[], RequestBus], cluster: str, lease_ttl_s: float, *, soon_s: float = SOON_S
    ) -> None:
        self._connect, self._cluster, self._soon_s = connect, cluster, soon_s
        self._connection: RequestBus | None = None
        self._seconds = min(DURATION_S, _OF_LEASE * lease_ttl_s)
        self._every_s = min(EVERY_S, self._seconds / 3)
        self._epoch = 0
        self._rounds, self._rounds_of = LendingRounds(0), 0
        self._short: dict[str, None] = {}  # topics to ask about, the longest waiting first
        self._last: set[str] = set()  # topics of the last round
        self._nodes: dict[str, int] = {}  # node -> round of its last answer
        self._answered: set[str] = set()
        self._change = asyncio.Event()
        self._any_short = asyncio.Event()  # a topic is short
        self._newly_short = asyncio.Event()  # a topic is short that wasn't in the last round, or under changed rules

    async def serve(self, fence: CreatedAt) -> None:
        """Run rounds until cancelled. Each epoch starts without loans; a term may restart under the same epoch."""
        self._epoch = fence.revision
        if self._rounds_of != self._epoch:
            self._rounds, self._rounds_of = LendingRounds(int(self._seconds * _SECOND)), self._epoch
        self._nodes, self._answered = {}, set()
        connection = self._connection = await self._open_bus()
        try:
            connection.listen(to_leader(self._cluster), self._on_message)
            while True:
                await self._wait()
                await self._round()
        finally:
            self._epoch = 0
            await connection.close()

    async def _open_bus(self) -> RequestBus:
        """Open a connection, retrying: an unreachable NATS must not end the leader's other tasks."""
        while True:
            connection = self._connect()
            try:
                await connection.open()
                return connection
            except EvenlaneError as error:
                _log.info("shares stay as they are", reason=str(error))
                await connection.close()
            await asyncio.sleep(_PAUSE_S)

    async def _wait(self) -> None:
        """Wait for the next round.

        A round needs a topic that is short of quota. It starts soon after one is reported, and regularly otherwise.
        """
        clock = asyncio.get_running_loop().time
        due = clock() + self._every_s
        await asyncio.sleep(min(self._soon_s, self._every_s))
        while not self._short:
            self._any_short.clear()
            await self._any_short.wait()
        try:
            async with asyncio.timeout(max(0.0, due - clock())):
                await self._newly_short.wait()
        except TimeoutError:
            pass
        self._newly_short.clear()

    async def _round(self) -> None:
        projects = self._list_due()
        number = self._rounds.begin()
        self._send(to_all(self._cluster), ShareRequest(self._epoch, number, projects))
        known = self._list_known()
        await self._answers(lambda: known)
        loans = self._rounds.loans()
        for node, parts in loans.items():
            self._send(to_node(self._cluster, node), LendOrder(node, self._epoch, number, self._seconds, parts))
        await self._answers(lambda: {*loans})
        for node, (given, freed) in self._rounds.grants(now_ns()).items():
            self._send(
                to_node(self._cluster, node), BorrowGrant(node, self._epoch, number, self._seconds, given, freed)
            )
        self._rounds.expire(now_ns())
        self._short.update(dict.fromkeys(self._rounds.list_borrowed() - self._short.keys()))

    def _list_due(self) -> list[str]:
        """Take the topics of this round out of `_short`. A topic leaves the rounds if no node reports it again and no
        loan of it remains.
        """
        due = [project for project, _ in zip(self._short, range(_MOST), strict=False)]
        if len(self._short) > len(due):
            self._newly_short.set()
        for project in due:
            del self._short[project]
        self._last = {*due}
        return due

    def _list_known(self) -> set[str]:
        """Return the nodes whose answers to wait for. Before the first round the nodes are unknown."""
        known = {node for node, last in self._nodes.items() if self._rounds.number - last <= _SILENT}
        return known or {_SOMEBODY}

    async def _answers(self, expected: Callable[[], set[str]]) -> None:
        """Wait for answers of these nodes, at most 150 ms."""
        self._answered.clear()
        try:
            async with asyncio.timeout(_ANSWER_S):
                while not expected() <= self._answered:
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            pass

    def _on_message(self, _subject: bytes, _reply: bytes, _headers: bytes, body: bytes) -> None:
        word = decode_for_leader(body)
        if word is None or not self._epoch:
            return
        if isinstance(word, Shortage):
            if word.anew or not {*word.projects} <= self._short.keys() | self._last:
                self._newly_short.set()
            if len(self._short) < _MOST_KNOWN:
                self._short.update(dict.fromkeys(word.projects))
            self._any_short.set()
            return
        if (word.epoch, word.number) != (self._epoch, self._rounds.number):
            return
        if isinstance(word, ShareReport):
            self._nodes[word.node] = word.number
            self._rounds.on_report(word.node, word.number, word.states)
        elif isinstance(word, ShareConfirmation):
            self._rounds.on_confirmation(word.node, word.number, word.standings)
        self._answered.add(word.node)
        self._change.set()

    def _send(self, subject: str, word: ShareRequest | LendOrder | BorrowGrant) -> None:
        assert self._connection is not None
        try:
            self._connection.send(subject, msgspec.json.encode(word))
        except Disconnected:
            _log.debug("nodes are out of reach")
