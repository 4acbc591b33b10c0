"""The leader's side of shares over nodes: rounds of questions and loans, as long as anything is short somewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.wire.share_messages import (
    DURATION_S,
    EVERY_S,
    SOON_S,
    Ask,
    Confirm,
    Grant,
    Lend,
    Report,
    Short,
    to_all,
    to_leader,
    to_node,
    told,
)
from evenlane.engine.errors import EvenlaneError
from evenlane.quota.lending.rounds import LendingRounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.ports import RequestBus
    from evenlane.ring.coordination.ports import CreatedAt

_log = structlog.get_logger(__name__)

_OF_LEASE = 0.3  # a loan lasts no longer than this share of a node's lease
_PAUSE_S = 1.0
_ANSWER_S = 0.15  # for nodes to answer
_SOMEBODY = ""
_SECOND = 1_000_000_000
_MOST = 500  # topics in a round: nodes answer in one turn of their loop; of more, some in each, the next one soon
_MOST_KNOWN = 20_000  # that wait for a round
_SILENT = 5  # rounds without an answer, after which a node isn't waited for


class QuotaLender:
    """`serve(fence)` while this node leads, on a connection of its own, which `connect` makes."""

    def __init__(
        self, connect: Callable[[], RequestBus], env: str, lease_ttl_s: float, *, soon_s: float = SOON_S
    ) -> None:
        self._connect, self._env, self._soon_s = connect, env, soon_s
        self._connection: RequestBus | None = None
        self._seconds = min(DURATION_S, _OF_LEASE * lease_ttl_s)
        self._every_s = min(EVERY_S, self._seconds / 3)
        self._epoch = 0
        self._rounds, self._rounds_of = LendingRounds(0), 0
        self._short: dict[str, None] = {}  # topics to ask about, those first that were asked about longest ago
        self._last: set[str] = set()  # what the last round was about
        self._nodes: dict[str, int] = {}  # in which round they answered last
        self._answered: set[str] = set()
        self._change = asyncio.Event()
        self._heard_of = asyncio.Event()  # something is short
        self._news = asyncio.Event()  # and the last round wasn't about it, or not under these rules

    async def serve(self, fence: CreatedAt) -> None:
        """Until it is cancelled. Each epoch begins with nothing granted; a term may begin again under the same one."""
        self._epoch = fence.revision
        if self._rounds_of != self._epoch:
            self._rounds, self._rounds_of = LendingRounds(int(self._seconds * _SECOND)), self._epoch
        self._nodes, self._answered = {}, set()
        connection = self._connection = await self._opened()
        try:
            connection.listen(to_leader(self._env), self._heard)
            while True:
                await self._wait()
                await self._round()
        finally:
            self._epoch = 0
            await connection.close()

    async def _opened(self) -> RequestBus:
        """A NATS that is away mustn't end the leader's other duties."""
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
        """For the next round: until anything is short, and then soon if that is news, else in its turn."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._every_s
        await asyncio.sleep(min(self._soon_s, self._every_s))
        while not self._short:
            self._heard_of.clear()
            await self._heard_of.wait()
        try:
            async with asyncio.timeout(max(0.0, due - clock())):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    async def _round(self) -> None:
        projects = self._due()
        number = self._rounds.begin()
        self._say(to_all(self._env), Ask(self._epoch, number, projects))
        known = self._known()
        await self._answers(lambda: known)
        loans = self._rounds.loans()
        for node, parts in loans.items():
            self._say(to_node(self._env, node), Lend(node, self._epoch, number, self._seconds, parts))
        await self._answers(lambda: {*loans})
        for node, (given, freed) in self._rounds.grants(now_ns()).items():
            self._say(to_node(self._env, node), Grant(node, self._epoch, number, self._seconds, given, freed))
        self._short.update(dict.fromkeys(self._rounds.lasting(now_ns()) - self._short.keys()))

    def _due(self) -> list[str]:
        """What this round is about; what isn't said to be short again, and of which nothing is lent, is forgotten."""
        due = [project for project, _ in zip(self._short, range(_MOST), strict=False)]
        if len(self._short) > len(due):
            self._news.set()
        for project in due:
            del self._short[project]
        self._last = {*due}
        return due

    def _known(self) -> set[str]:
        """The nodes that are waited for; before the first round nobody knows which there are."""
        known = {node for node, last in self._nodes.items() if self._rounds.number - last <= _SILENT}
        return known or {_SOMEBODY}

    async def _answers(self, wanted: Callable[[], set[str]]) -> None:
        """Wait for these nodes' answers, 150 ms at the most."""
        self._answered.clear()
        try:
            async with asyncio.timeout(_ANSWER_S):
                while not wanted() <= self._answered:
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            pass

    def _heard(self, _subject: bytes, _reply: bytes, _headers: bytes, body: bytes) -> None:
        word = told(body)
        if word is None or not self._epoch:
            return
        if isinstance(word, Short):
            if word.anew or not {*word.projects} <= self._short.keys() | self._last:
                self._news.set()
            if len(self._short) < _MOST_KNOWN:
                self._short.update(dict.fromkeys(word.projects))
            self._heard_of.set()
            return
        if (word.epoch, word.number) != (self._epoch, self._rounds.number):
            return
        if isinstance(word, Report):
            self._nodes[word.node] = word.number
            self._rounds.reported(word.node, word.number, word.states)
        elif isinstance(word, Confirm):
            self._rounds.confirmed(word.node, word.number, word.standings)
        self._answered.add(word.node)
        self._change.set()

    def _say(self, subject: str, word: Ask | Lend | Grant) -> None:
        assert self._connection is not None
        try:
            self._connection.send(subject, msgspec.json.encode(word))
        except Disconnected:
            _log.debug("nodes are out of reach")
