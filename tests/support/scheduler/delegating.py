"""A scheduler that passes each call on to a fair scheduler."""

from evenlane.engine.core.scheduler.fair import FairScheduler


class DelegatingScheduler:
    """Doubles override the calls that they look at. They can't inherit from `FairScheduler`: a compiled class has no
    interpreted subclass.
    """

    def __init__(self, concurrency=8, max_group_qps=1_000_000):
        self.inner = FairScheduler(concurrency, max_group_qps)

    def __getattr__(self, name):
        return getattr(self.inner, name)
