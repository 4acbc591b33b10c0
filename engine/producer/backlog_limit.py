"""Enforces `max_backlog` in a producer: BacklogFull for a put whose topic's backlog is at its limit.

Nodes report backlogs every second. If no node has reported a partition for 5 s, the store is asked, at most once a
second per project, so the limit holds even while no node runs. See docs/explanation/flow-control.md.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from evenlane.engine.base.names import LaneId
from evenlane.engine.base.plural import format_count
from evenlane.engine.core.ports import Disconnected, Lost, Refused
from evenlane.engine.core.records.backlog_report import decode_report, partitions_of, request_subject, subject
from evenlane.engine.errors import BacklogFull, Unreachable
from evenlane.engine.producer.backlog_estimate import BacklogEstimate
from evenlane.engine.producer.tuning import DEFAULT, ProducerTuning

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from evenlane.engine.core.ports import ClusterLayout, Store
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.producer.pipeline.pending_put import PendingPut

_ASKS_AT_ONCE = 32  # partitions; nats-server drops all pending requests once there are 10,000
_AHEAD = 60_000_000_000  # ns; a report from further in the future is a clock defect


class BacklogLimiter:
    """Limits the backlogs of all topics. `connect` makes the connection for nodes' reports, on the first put to a topic
    with a limit; without it only the store is asked. With `asks_nodes`, this producer may read neither the reports
    about all projects nor streams, and asks nodes for the counts of its own projects.
    """

    def __init__(
        self,
        env: str,
        store: Store,
        cluster_config: ClusterLayout,
        connect: Callable[[], RequestBus] | None,
        tuning: ProducerTuning = DEFAULT,
        *,
        asks_nodes: bool = False,
    ) -> None:
        self._tuning, self._asks_nodes = tuning, asks_nodes
        self._inbox = ""  # for the answers of nodes, once the connection is open
        self._reported = asyncio.Event()
        self._env, self._store, self._cluster_config, self._connect = env, store, cluster_config, connect
        self._backlogs: dict[str, BacklogEstimate] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._asked_at: dict[str, float] = {}
        self._asks = asyncio.Semaphore(_ASKS_AT_ONCE)
        self._listening: asyncio.Task[None] | None = None
        self._bus: RequestBus | None = None

    async def close(self) -> None:
        tasks = [each for each in (*self._asking.values(), self._listening) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._bus is not None:
            await self._bus.close()

    def try_acquire(self, pending: PendingPut) -> bool:
        """Count a put in if its topic's backlog is known and has room. Raises BacklogFull."""
        if pending.backlog is not None or pending.accepted.topic.max_backlog is None:
            return True
        backlog = self._get_estimate(pending)
        now = monotonic()
        if now >= backlog.fresh_until:
            self._ask(backlog, now)
        if now >= backlog.usable_until:
            return False
        if backlog.is_full:
            waiting = format_count(backlog.known + backlog.flying, "message", "waits", "wait")
            raise BacklogFull(
                f"the message for {pending.project} is not stored: {waiting} there, and its max_backlog is "
                f"{backlog.limit:,}: put it again when fewer wait"
            )
        backlog.flying += 1
        pending.backlog = backlog
        return True

    async def acquire(self, pending: PendingPut) -> None:
        """Wait until the backlog of a put's topic is known, then count the put in. Raises BacklogFull."""
        while not self.try_acquire(pending):
            asking = self._asking.get(pending.project)
            if asking is not None:
                await asyncio.wait([asking])
            else:  # the next request isn't due yet
                await asyncio.sleep(self._tuning.counted_s / 10)

    def _get_estimate(self, pending: PendingPut) -> BacklogEstimate:
        project, accepted = pending.project, pending.accepted
        backlog = self._backlogs.get(project)
        if backlog is None:
            backlog = self._backlogs[project] = BacklogEstimate(project, self._tuning)
            self._listen()
        if backlog.accepted is not accepted:
            config = self._cluster_config
            backlog.follow(accepted, partitions_of(project, accepted, config.partitions, config.layout))
        return backlog

    # ---- nodes' reports

    def _listen(self) -> None:
        if self._listening is None and self._connect is not None:
            self._listening = self._task(self._open_listener(self._connect()), "producer hears of backlogs")

    async def _open_listener(self, connection: RequestBus) -> None:
        self._bus = connection
        while True:
            try:
                await connection.open()
            except Unreachable:
                await asyncio.sleep(self._tuning.counted_s)
            else:
                if self._asks_nodes:
                    self._inbox = connection.new_inbox()
                connection.listen(self._inbox or subject(self._env, "*"), self._on_report)
                return

    def _on_report(self, _subject: bytes, _reply: bytes, _headers: bytes, body: bytes) -> None:
        report = decode_report(body)
        if report is None or report.at > self._store.now() + _AHEAD:
            return
        now, fresh_s = monotonic(), self._tuning.counted_s if self._asks_nodes else None
        for entry in report.entries:
            backlog = self._backlogs.get(entry.project)
            if backlog is not None:
                backlog.apply_report(entry, report.at, now, fresh_s)
        self._reported.set()

    # ---- counts on request

    def _ask(self, backlog: BacklogEstimate, now: float) -> None:
        project, counted_s = backlog.project, self._tuning.counted_s
        if project in self._asking or now - self._asked_at.get(project, -counted_s) < counted_s:
            return
        self._asked_at[project] = now
        task = self._asking[project] = self._task(self._count(backlog, now), "producer counts a backlog")
        task.add_done_callback(lambda _: self._asking.pop(project, None))

    async def _count(self, backlog: BacklogEstimate, now: float) -> None:
        try:
            async with asyncio.timeout(self._tuning.count_within_s):
                if self._asks_nodes:
                    await self._ask_nodes(backlog)
                else:
                    await asyncio.gather(*(self._count_in(backlog, number) for number in backlog.stale(now)))
        except (TimeoutError, Lost, Refused, Disconnected):
            backlog.note_no_count(monotonic())

    async def _ask_nodes(self, backlog: BacklogEstimate) -> None:
        """Ask the owners of the project's partitions, and wait for the answers of all. Raises Disconnected."""
        if self._listening is not None:
            await asyncio.shield(self._listening)
        if self._bus is None:
            raise Disconnected("there is no connection for backlogs")
        self._bus.send(request_subject(self._env, backlog.project), b"", reply=self._inbox)
        while backlog.stale(monotonic()):
            self._reported.clear()
            await self._reported.wait()

    async def _count_in(self, backlog: BacklogEstimate, partition: int) -> None:
        async with self._asks:
            at = self._store.now()
            lane, later = await asyncio.gather(
                self._store.count_by_subject(LaneId("lanes", partition), backlog.project),
                self._store.count_by_subject(LaneId("later", partition), backlog.project),
            )
        waiting = sum(lane.counts.values()) + sum(later.counts.values())
        backlog.apply_count(partition, waiting, lane.last, later.last, at, monotonic())

    @staticmethod
    def _task(work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=name)
