"""Schedulers that lack a part of isolation."""

from collections import defaultdict

from evenlane.engine.proof.baselines.schedulers import FifoScheduler, PlainScheduler, stored_at

_SECOND = 1_000_000_000


def fifo(_concurrency):
    """Neither quotas nor fairness: first come, first served."""
    return FifoScheduler(stored_at)


def fair_without_quota(_concurrency):
    """The groups of all projects take turns."""
    return PlainScheduler()


def quota_without_fairness(_concurrency):
    """First come, first served among the projects that are within their quota."""
    return _QuotaFifo(stored_at)


class _QuotaFifo(FifoScheduler):
    def __init__(self, arrived_at):
        super().__init__(arrived_at)
        self._quotas = defaultdict(_Quota)

    def configure(self, project, topic, now, whole=None):
        quota = self._quotas[project]
        quota.interval, quota.burst = int(_SECOND / topic.qps), int(topic.burst)

    def ready(self, queue, now):
        quota = self._quotas[queue.project]
        quota.queues.add(queue)
        if quota.opens_at <= now:
            super().ready(queue, now)

    def empty(self, queue, now):
        self._quotas[queue.project].queues.discard(queue)
        super().empty(queue, now)

    def next(self, now):
        for quota in self._quotas.values():
            if quota.is_closed and quota.opens_at <= now:
                quota.is_closed = False
                for queue in quota.queues:
                    super().ready(queue, now)
        grant = super().next(now)
        if grant is not None:
            quota = self._quotas[grant.queue.project]
            quota.spend(now)
            if quota.opens_at > now:
                quota.is_closed = True
                for queue in quota.queues:
                    super().empty(queue, now)
        return grant

    def wake_at(self):
        return min((quota.opens_at for quota in self._quotas.values() if quota.is_closed), default=None)


class _Quota:
    """A project's token bucket, times in ns. `queues` are those with messages."""

    def __init__(self):
        self.interval, self.burst = 0, 1
        self.queues = set()
        self.opens_at, self.is_closed = 0, False

    def spend(self, now):
        self.opens_at = max(self.opens_at, now - (self.burst - 1) * self.interval) + self.interval
