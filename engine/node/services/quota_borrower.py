"""A node's side of quota lending: reports shortages, answers the leader, lends and borrows as instructed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.records.share_messages import (
    CHANGED_S,
    EVERY_S,
    BorrowGrant,
    LendOrder,
    ShareConfirmation,
    ShareReport,
    ShareRequest,
    Shortage,
    decode_request,
    to_all,
    to_leader,
    to_node,
)
from evenlane.engine.node.queues.quota_share import WHOLE
from evenlane.engine.node.services.quota_demand import QueueDemand, QuotaDemand
from evenlane.quota.lending.parts import NodeLoans, PartDemand

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from evenlane.engine.cluster.topics.topic_cache import OnChange
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.node.node import Node
    from evenlane.quota.topics.topic import Accepted

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_MOST = 2_000  # topics per message
_SLICE = 200  # projects examined per turn of the loop


class QuotaBorrower:
    """Lends and borrows for one node. Call `open` on an open connection, and `close` before it is closed.

    `on_change` is the list of topic listeners to join. `on_lent` receives the lent projects, each with the time
    (monotonic ns) until which it is lent, before the leader learns of it.

    Invariant: `_active` has all projects except those with no message waiting, or handed out, between their last two
    looks; the next message of such a project arrives in `_watch`.
    """

    def __init__(
        self,
        connection: RequestBus,
        cluster: str,
        node: Node,
        on_change: list[OnChange],
        on_lent: Callable[[Mapping[str, int]], None] = lambda _lent: None,
        *,
        every_s: float = EVERY_S,
        demand: QuotaDemand | None = None,
    ) -> None:
        self._every_s = every_s
        self._connection, self._cluster, self._node = connection, cluster, node
        self._on_change, self._on_lent = on_change, on_lent
        self._shares = node.queues.shares
        self._demand = demand or QuotaDemand()
        self._active: set[str] = set()
        self._watch = node.queues.activity.watch(node.queues.all())
        self._looked = now_ns()  # start of the last look at all active projects
        self._changed: set[str] = set()
        self._change = asyncio.Event()
        self._look_task: asyncio.Task[None] | None = None
        self._ending: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._connection.listen(to_all(self._cluster), self._on_message)
        self._connection.listen(to_node(self._cluster, self._node.id), self._on_message)
        self._on_change.append(self._on_topic_change)
        self._node.queues.on_gone.append(self._on_queues_gone)
        self._look_task = asyncio.create_task(self._look(), name="shares")

    async def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        if self._look_task is not None:
            self._on_change.remove(self._on_topic_change)
            self._node.queues.on_gone.remove(self._on_queues_gone)
            self._look_task.cancel()
            await asyncio.gather(self._look_task, return_exceptions=True)
            self._look_task = None
        self._watch.close()

    # ---- shortages

    async def _look(self) -> None:
        """Look periodically at all active topics, and in between at those that change."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._every_s
        while True:
            is_changed = await self._is_changed_by(due)
            if not is_changed:
                due = clock() + self._every_s
            try:
                await (self._look_at_changed() if is_changed else self.look())
            except Exception:  # noqa: BLE001 - a defect here must not end the node
                _log.exception("what is short could not be told")

    async def _is_changed_by(self, due: float) -> bool:
        """Whether a topic has changed before the loop's time `due`; returns at the latest then."""
        try:
            async with asyncio.timeout_at(due):
                await self._change.wait()
                await asyncio.sleep(CHANGED_S)  # gather repeated changes into one look
        except TimeoutError:
            return False
        return True

    def _on_topic_change(self, project: str, _accepted: Accepted | None) -> None:
        self._changed.add(project)
        self._change.set()

    async def _look_at_changed(self) -> None:
        self._change.clear()
        changed, self._changed = self._changed, set()
        known = {project for project in changed if self._shares.has_rules(project)}
        self._active |= known
        await self._send_short(known, is_new=True)

    async def look(self) -> None:
        """Report all active projects that are short."""
        self._take_woken()
        self._looked = now_ns()
        await self._send_short(list(self._active))

    def _take_woken(self) -> None:
        """Activate projects that have had a message while they were silent."""
        for queue in self._watch.take_changed():
            if queue.project not in self._active:
                self._active.add(queue.project)
                self._demand.note_rest(queue.project, self._looked)

    def _on_queues_gone(self, queues: Iterable[Queue]) -> None:
        """These queues are about to belong to another node: look at their projects again."""
        self._active.update(queue.project for queue in queues)

    async def _send_short(self, projects: Collection[str], *, is_new: bool = False) -> None:
        short = []
        for number, project in enumerate(projects, start=1):
            state = self._state(project)
            if state is not None and state.own < WHOLE and state.want > state.own:
                short.append(project)
            self._release_if_silent(project, state)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        for start in range(0, len(short), _MOST):
            self._send(Shortage(self._node.id, short[start : start + _MOST], is_new))

    def _release_if_silent(self, project: str, state: PartDemand | None) -> None:
        """Deactivate a silent project. Its next message activates it again, and so does a change of its rules."""
        queues = self._node.queues.of_project(project)
        if not queues:
            self._demand.discard(project)
        elif state is not None and not self._demand.is_at_rest(project):
            return
        if not any(queue.backlog for queue in queues):
            self._active.discard(project)
            for queue in queues:
                self._watch.release(queue)

    def _state(self, project: str) -> PartDemand | None:
        """The project's own part and wanted part. None if the node owns and has nothing of it, or its groups may not
        borrow. A silent project wants nothing.
        """
        parts = self._shares.parts_of(project)
        if parts is None:
            return None
        topic, own, part = parts
        if not self._node.queues.of_project(project):
            return PartDemand(own, 0.0) if own else None
        self._take_woken()
        if project not in self._active:
            return PartDemand(own, 0.0)
        now = now_ns()
        seen = QueueDemand(self._node.scheduler.measure_use(project, now), topic.qps, own, part)
        return PartDemand(own, self._demand.want(project, seen, now, lambda: self._count_waiting(project)))

    def _count_waiting(self, project: str) -> tuple[int, float]:
        """The number of messages waiting, and the highest rate (msg/s) that their groups may have."""
        queues = [queue for queue in self._node.queues.of_project(project) if queue.backlog]
        groups = len({queue.group for queue in queues})
        return sum(queue.backlog for queue in queues), groups * self._node.cluster_config.max_group_qps

    # ---- requests of the leader

    def _on_message(self, _subject: bytes, _reply: bytes, _headers: bytes, body: bytes) -> None:
        word = decode_request(body)
        if isinstance(word, ShareRequest):
            self._report(word)
        elif word is None or word.node != self._node.id:
            _log.debug("not for this node")
        elif isinstance(word, LendOrder):
            self._lend(word)
        else:
            self._borrow(word)

    def _report(self, ask: ShareRequest) -> None:
        if not self._shares.loans.begin_report(ask.epoch, ask.number, now_ns()):
            return
        found = {project: self._state(project) for project in ask.projects}
        states = {project: state for project, state in found.items() if state is not None}
        self._send(ShareReport(self._node.id, ask.epoch, ask.number, states))

    def _lend(self, word: LendOrder) -> None:
        now = now_ns()
        until = now + int(word.seconds * _SECOND)
        # With trust until then, the loan ends before the partitions can have a new owner, even if the node dies.
        trusted = self._node.trusted_until >= until
        loans, node_loans = self._shares.loans, {}
        for project, loan in word.loans.items():
            before = loans.totals(project)
            own = self._shares.compute_own_part(project)
            lent = loans.lend(project, word.epoch, word.number, loan.lend if trusted else 0.0, own, until)
            borrowed = loans.keep(project, word.epoch, word.number, loan.keep)
            node_loans[project] = NodeLoans(lent, borrowed)
            if loans.totals(project) != before:
                _log.debug("lends", project=project, part=lent, borrowed=borrowed, epoch=word.epoch)
                self._shares.on_change([project])
        self._on_lent(loans.list_lent())
        self._send(ShareConfirmation(self._node.id, word.epoch, word.number, node_loans))
        self._arm()

    def _borrow(self, word: BorrowGrant) -> None:
        loans, now, duration = self._shares.loans, now_ns(), int(word.seconds * _SECOND)
        changed = {
            project
            for project, part in word.parts.items()
            if loans.grant(project, word.epoch, word.number, part, duration, now)
        }
        changed.update(project for project in word.freed if loans.free(project, word.epoch, word.number))
        for project in changed:
            _log.debug("borrows", project=project, part=word.parts.get(project, 0.0), epoch=word.epoch)
        self._shares.on_change(changed)
        self._arm()

    # ---- the end of loans

    def _arm(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        ends = self._shares.loans.ends()
        if ends is not None:
            after = max(0.0, (ends - now_ns()) / _SECOND)
            self._ending = asyncio.get_running_loop().call_later(after, self._end)

    def _end(self) -> None:
        self._shares.on_change(self._shares.loans.expire(now_ns()))
        self._arm()

    def _send(self, word: Shortage | ShareReport | ShareConfirmation) -> None:
        try:
            self._connection.send(to_leader(self._cluster), msgspec.json.encode(word))
        except Disconnected:
            _log.debug("the leader is out of reach")
