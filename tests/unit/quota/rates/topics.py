"""A topic in use: its quota, its groups and their messages."""

from evenlane.quota.rates.gcra import SECOND
from evenlane.quota.rates.groups import Group, TopicQuota

FAR = 10**18
MS = 1_000_000


class Topic:
    """A topic's groups, and the instants of their messages."""

    def __init__(self, qps, groups, burst=1, borrow=True, most=150.0, now=FAR):
        self.quota, self.groups = TopicQuota(), [Group() for _ in range(groups)]
        self.now = now
        self.configure(qps, groups, burst, borrow, most)
        self.got = [[] for _ in self.groups]

    def configure(self, qps, groups, burst=1, borrow=True, most=150.0):
        self.qps, self.most, self.borrows = qps, most, borrow and groups > 1
        self.quota.configure(qps, groups, burst, self.now, borrow=borrow, max_group_qps=most, known=self.groups)

    def wants(self, *numbers):
        for number in numbers:
            if not self.groups[number].ready:
                self.quota.enter(self.groups[number], self.now)

    def ends(self, *numbers):
        for number in numbers:
            if self.groups[number].ready:
                self.quota.leave(self.groups[number])

    def take(self):
        """Take the next message, and return its group's number; None if no message conforms."""
        group = self.quota.choose(self.now)
        if group is None:
            return None
        self.last = group, self.quota.at, group.at, group.cap_at
        self.quota.spend(group, self.now)
        number = self.groups.index(group)
        self.got[number].append(self.now)
        return number

    def run(self, seconds):
        """Take each message as soon as it conforms, for a time."""
        end, order = self.now + int(seconds * SECOND), []
        while self.now < end:
            while (number := self.take()) is not None:
                order.append(number)
            assert self.quota.wakes_at > self.now
            self.now = min(end, self.quota.wakes_at)
        return order

    def counts(self):
        return [len(times) for times in self.got]
