"""A scheduler that passes each call on to a fair scheduler."""

from evenlane.engine.core.scheduler.fair import FairScheduler


class DelegatingScheduler:
    """The base class of doubles, which override the calls that they observe. It can't inherit from `FairScheduler`: a
    compiled class can't have interpreted subclasses.
    """

    def __init__(self, concurrency=8, max_group_qps=1_000_000):
        self.inner = FairScheduler(concurrency, max_group_qps)

    def __getattr__(self, name):
        return getattr(self.inner, name)
