"""Registry of a node's tenants for metrics: sampled in rounds over queues, kept for the busiest projects. Pure.

A round looks once at each queue that isn't silent; a silent one would add nothing. The wait reason of a head at that
moment counts for the duration of the previous round. Looks are that far apart, so over time each reason gets its true
share (time-weighted sampling). Figures of a project with a label of its own are kept individually, all others' together
under one label. The number of time series is therefore bounded, whatever tenants do. Times are monotonic ns, except
`head_at`, which is unix ns.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evenlane.engine.telemetry.metric_names import OTHER
from evenlane.engine.telemetry.tenants.backlog import TenantBacklog, forecast
from evenlane.engine.telemetry.tenants.fairness import COMPETES, Round, Usage
from evenlane.engine.telemetry.tenants.flows import Flows, TenantFlow
from evenlane.engine.telemetry.tenants.history import TenantHistory
from evenlane.engine.telemetry.tenants.labels import Labels
from evenlane.engine.telemetry.tenants.load import LoadMeter
from evenlane.engine.telemetry.tenants.paces import Paces, Place
from evenlane.engine.telemetry.tenants.waits import Key, WaitTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.records.backlog_answer import Rates
    from evenlane.engine.telemetry.tenants.backlog import QueueSample
    from evenlane.quota.topics.topic import Topic

_SECOND = 1_000_000_000
_CHOOSE_EVERY = 10 * _SECOND


class TenantRegistry:
    """Figures of all tenants. `table` has the findings of the last complete round, which took `round_s`; `counted` and
    `waits` never decrease. `left_out` counts projects without a label of their own. `quotas` has the rates (msg/s) that
    the node may take of named projects' topics, including loans. `indexed` counts messages that queues know
    individually; `loads` has the node's load, `paces` the measurements of rates. `failing_since` has, for named
    projects, when the first of the attempts failed that no success has followed (monotonic ns). `projects` must be a
    view of all projects with queues on the node, including silent ones; None: those that are looked at.
    """

    def __init__(self, priorities: Sequence[str], most: int, max_group_qps: float, *, recovery_s: float = 60.0) -> None:
        self.priorities, self._max_group_qps = tuple(priorities), max_group_qps
        self._labels = Labels(most)
        self.waits = WaitTimes()
        self.usage = Usage()
        self.loads = LoadMeter(recovery_s)
        self.history = TenantHistory()
        self.counted: dict[Place, TenantFlow] = {}
        self.table: dict[Place, TenantBacklog] = {}
        self.moving: dict[Place, TenantBacklog] = {}  # that part of `table` that isn't known to be at rest
        self.quotas: dict[str, float] = {}
        self.failing_since: dict[str, int] = {}
        self.left_out = self.indexed = 0
        self.round_s = 0.0
        self.projects: Collection[str] | None = None
        self._flows = Flows(len(priorities))
        self._round: dict[Place, TenantBacklog] = {}
        self._began: int | None = None
        self._weight = 0.0
        self._chosen: int | None = None
        self._grown: set[Place] = set()  # places with new counts in this round
        self._new: set[Place] = set()  # those of them that had none before
        self._at_rest: set[Place] = set()  # places whose backlog is taken from the round before
        # Rounds skip these labels until something happens to them. Invariant: `table` has their backlogs, which are at
        # rest, and `quotas` has the quotas of those with a topic.
        self._labels_at_rest: set[str] = set()
        self._waiting: dict[str, int] = {}
        self._competing: set[str] = set()
        self._indexing = 0
        self.paces = Paces(len(priorities))
        self._topics: dict[str, Topic | None] = {}

    def clear(self) -> None:
        """Forget all queues, as a node's session has begun or ended."""
        self._flows.clear()
        self.waits.clear()
        self.usage.clear()
        self.loads.clear()
        self._began, self._weight = None, 0.0
        self.table, self._round, self.quotas, self.indexed, self.failing_since = {}, {}, {}, 0, {}
        self.measure_again()

    def measure_again(self) -> None:
        """Discard rate samples, as partitions have come or gone."""
        self._labels_at_rest.clear()
        self.paces.clear()

    def on_rules_change(self) -> None:
        """Note that topics, or the node's parts of them, may have changed since the last round."""
        self._labels_at_rest.clear()

    def rates_of(self, project: str) -> Rates | None:
        """Return the rates of all priorities together as of the last round; None while one is unknown, or if the
        project has no label of its own.
        """
        return None if project == OTHER else self.paces.rates_of(project, self.table)

    # ---- one round

    def begin(self, now: int) -> None:
        if self._began is not None:
            self.round_s = self._weight = (now - self._began) / _SECOND
        self._began = now
        self.waits.begin(now)
        self.usage.begin(now, self._weight)
        self.loads.begin()
        self._round = {}
        self._waiting = {}
        self._grown, self._new = set(), set()
        self._competing = set()
        self._indexing = 0

    def look(self, look: QueueSample) -> None:
        project, band = look.project, look.band
        label = self._labels.label_of(project)
        self._flows.add(project, band, look.flow)
        self._indexing += look.indexed
        self._waiting[project] = self._waiting.get(project, 0) + look.backlog
        if look.reason is not None and self._weight:
            self.waits.add(project, Key(label, band, look.reason), self._weight, look.backlog)
            if look.reason in COMPETES:
                self._competing.add(project)
            self.loads.look(look)
        if look.backlog or look.reason is not None:
            self._backlog_of(label, band).add(look)

    def on_queue_gone(self, project: str, band: int, flow: TenantFlow) -> None:
        """Add the last new counts of a queue that is no longer the node's."""
        self._flows.add(project, band, flow)

    def places(self) -> Collection[tuple[LaneId, int]]:
        """Return where the heads are whose age is unknown and decides the age of a named project's backlog."""
        return {
            place
            for (label, _), tenant_backlog in self._round.items()
            if label != OTHER
            for place in tenant_backlog.places.items()
        }

    def count(self, weight_of: Callable[[str], float]) -> Iterator[None]:
        """Add the new counts of all queues, after all have been looked at. One step per project with new counts."""
        competing = self._competing
        for project, by_band in self._flows.end():
            label = self._labels.label_of(project)
            for band, flow in enumerate(by_band):
                if (label, band) not in self.counted:
                    self._new.add((label, band))
                self.counted[label, band] = self.counted.get((label, band), TenantFlow()).plus(flow)
                self._grown.add((label, band))
            self._labels.note_moved(project, sum(flow.moved for flow in by_band))
            self._note_failures(label, by_band)
            waited = self._weight if project in competing else 0.0
            competing.discard(project)
            self._use(project, by_band, waited, weight_of)
            yield
        for project in competing:
            self._use(project, (), self._weight, weight_of)
            yield

    def _note_failures(self, label: str, by_band: Sequence[TenantFlow]) -> None:
        if any(flow.handled for flow in by_band):
            self.failing_since.pop(label, None)
        elif label != OTHER and self._began is not None and any(flow.counts.failed for flow in by_band):
            self.failing_since.setdefault(label, self._began)

    def _use(self, project: str, flows: Iterable[TenantFlow], waited: float, weight_of: Callable[[str], float]) -> None:
        ran, attempts, arrived = 0, 0, 0
        for flow in flows:
            ran, attempts, arrived = ran + flow.ran, attempts + flow.attempts, arrived + flow.arrived
        if ran or waited:
            backlog = self._waiting.get(project, 0)
            self.usage.note(project, Round(ran / _SECOND, attempts, waited, backlog, weight_of(project), arrived))

    def end(
        self,
        now: int,
        store_now: int,
        in_flight: Mapping[tuple[str, int], int],
        came: Mapping[tuple[LaneId, int], int | None],
        topic_of: Callable[[str], Topic | None],
        part_of: Callable[[str], float],
    ) -> Iterator[None]:
        """Finish the round after `count`, at `store_now` by the store's clock. `in_flight` counts by project and band;
        `came` is since when heads at `places` have waited, in unix ns; `topic_of` returns a project's topic, `part_of`
        the node's part of its quota. One step per label that isn't at rest, and some for clean-up; the old table stays
        until then.
        """
        for (project, band), count in in_flight.items():
            self._backlog_of(self._labels.label_of(project), band).in_flight += count
        here = self._labels.own(self._present())
        self._labels_at_rest &= here
        self._labels_at_rest.difference_update(label for label, _ in chain(self._round, self._grown))
        self._at_rest = set()
        for label in {*(here - self._labels_at_rest), *({OTHER} if len(self._present()) > len(here) else ())}:
            for band in range(len(self.priorities)):
                self._complete((label, band))  # a place with a counter gets all other figures, too
        self._resolve(came, store_now)
        looked = now if self._began is None else self._began  # what has come since then isn't counted yet
        yield from self._measure(looked)
        yield from self._forecast(now, topic_of, part_of)
        yield from self.loads.measure(now, self.usage, topic_of, part_of)
        self.paces.end_round(looked)
        kept = {
            place: tenant_backlog for place, tenant_backlog in self.table.items() if place[0] in self._labels_at_rest
        }
        self.moving = self._round
        self.table, self._round, self.indexed = kept | self._round, {}, self._indexing
        yield from self._choose(now)

    def _present(self) -> Collection[str]:
        return self._waiting.keys() if self.projects is None else self.projects

    def _backlog_of(self, label: str, band: int) -> TenantBacklog:
        tenant_backlog = self._round.get((label, band))
        if tenant_backlog is None:
            tenant_backlog = self._round[label, band] = TenantBacklog()
        return tenant_backlog

    def _complete(self, place: Place) -> None:
        """Add the backlog of a place that wasn't looked at: the previous one if it is still at rest."""
        if place in self._round:
            return
        previous = self.table.get(place)
        is_known = previous is not None and (place[0] == OTHER or previous.empty_in == 0.0)
        if (
            previous is None
            or not (is_known and previous.is_at_rest)
            or place in self._grown
            or place not in self.paces
        ):
            self._backlog_of(*place)
        else:
            self._round[place] = previous
            self._at_rest.add(place)

    def _resolve(self, came: Mapping[tuple[LaneId, int], int | None], store_now: int) -> None:
        for key, tenant_backlog in self._round.items():
            if key in self._at_rest:
                continue
            for place in tenant_backlog.places.items():
                if (at := came.get(place)) is not None:
                    tenant_backlog.note_arrival(at)
            tenant_backlog.note_age(store_now)

    def _measure(self, looked: int) -> Iterator[None]:
        round_ns = int(self.round_s * _SECOND)
        for place, tenant_backlog in self._round.items():
            if place in self._at_rest:
                continue
            yield
            counted = self.counted.get(place, TenantFlow())
            is_new = not self.left_out and (place in self._new or place not in self.counted)
            tenant_backlog.rates = self.paces.measure(place, looked, counted, round_ns, is_new=is_new)

    # ---- forecast

    def _forecast(
        self, now: int, topic_of: Callable[[str], Topic | None], part_of: Callable[[str], float]
    ) -> Iterator[None]:
        quotas = {project: qps for project, qps in self.quotas.items() if project in self._labels_at_rest}
        at_rest: list[str] = []
        for project in self._labels.named - self._labels_at_rest:
            yield
            topic = topic_of(project)
            if topic is not None:
                quotas[project] = topic.qps * part_of(project)
            if self._topics.setdefault(project, topic) != topic:  # rates under other rules don't apply
                self._topics[project] = topic
                self.paces.forget(project)
                continue
            if all((project, band) in self._at_rest for band in range(len(self.priorities))):
                at_rest.append(project)
                continue
            bands = [self._round.get((project, band)) or TenantBacklog() for band in range(len(self.priorities))]
            if topic is not None and any(each.backlog for each in bands):
                topic = replace(topic, qps=quotas[project])
            forecast(bands, topic, self._max_group_qps, self.paces.trends(project), now)
        self.quotas = quotas
        self._labels_at_rest.update(at_rest)

    # ---- labels

    def _choose(self, now: int) -> Iterator[None]:
        """Choose labels every 10 s."""
        if self._chosen is None or now - self._chosen >= _CHOOSE_EVERY:
            self._chosen = now
            yield from self.usage.tidy()
            for label in self._labels.choose(self._waiting, self._present()):
                self._forget(label)
        self.left_out = len(self._present()) - len(self._labels.own(self._present()))

    def _forget(self, label: str) -> None:
        self.waits.drop(label)
        self.history.forget(label)
        self._labels_at_rest.discard(label)
        self._topics.pop(label, None)
        self.failing_since.pop(label, None)
        self.paces.forget(label)
        for band in range(len(self.priorities)):
            for known in (self.counted, self.table):
                known.pop((label, band), None)
