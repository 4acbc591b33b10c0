"""Start-time fair queueing between tenants, charged by handler time.

Each tenant is a flow with a weight w and a start tag S, in handler time per unit of weight. The tenant with the lowest
S is next. Its message is charged an estimated cost c at once: S += c / w; when it ends after s, the difference follows:
S += (s - c) / w. The virtual time V is the highest start tag handed out so far. A tenant that begins to ask enters with
S = max(S, V): it has neither saved up a claim while it was idle, nor does it pay for what it used while no other tenant
wanted it.

Over any interval in which tenants i and j both wait all the time, the handler time T that each got satisfies

    | T_i / w_i - T_j / w_j |  <=  l_i / w_i + l_j / w_j

with l the most that a tenant has been charged and not yet corrected (its longest message times one more than the number
of its messages in flight, since a correction of less than a message waits for the next charge). Because the tenant is
charged and not its queues, splitting into groups gains nothing (X2).

Sources: Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996); the correction when a request ends is that of
Kubernetes' API priority and fairness (KEP-1040).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

UNIT = 1 << 20
"""Start tags are whole numbers of ns / weight / UNIT; as floats they would lose short messages after some days."""
OVERHEAD = 10_000.0
"""The cost (ns) of a message to the node itself, in addition to its handler, so that handlers that take no time count
by number.
"""
_FIRST_GUESS = 1_000_000.0
_NONE = 0.01  # messages
_FEW = 64
_SMOOTHING = 8  # the mean of service times moves by 1/8 of the difference


class Flow:
    """The state of a tenant in fair queueing.

    Invariants:
    - `running` is the number of its messages in flight, `charged` (ns) what they were charged in total.
    - `previous` of the running messages began under other weights, whose mean scale is `previous_scale`. It is a
      fraction, because it isn't known which of them have ended.
    - `owed` (ns) are corrections not yet applied to `start`; at most a message's worth, so that most messages move the
      flow in its line only once.
    - `line` is the line that it is in. `entered`, `ticket` and `noted` describe its valid entry in a line's heap (line,
      number, start tag), which may remain from before it left.
    """

    __slots__ = (
        "charged",
        "entered",
        "line",
        "mean",
        "noted",
        "owed",
        "previous",
        "previous_scale",
        "running",
        "scale",
        "start",
        "ticket",
        "weight",
    )  # fmt: skip

    def __init__(self) -> None:
        self.weight = 1.0
        self.scale = float(UNIT)  # UNIT / weight
        self.start = 0
        self.mean = 0.0  # ns per message, OVERHEAD included, moving average; 0: none has ended yet
        self.charged = 0.0
        self.owed = 0.0
        self.running = 0
        self.previous = self.previous_scale = 0.0
        self.line: Line[Flow] | None = None
        self.entered: Line[Flow] | None = None
        self.ticket = self.noted = 0

    def weigh(self, weight: float) -> None:
        """Set the weight, above 0."""
        self.weight, self.scale = weight, UNIT / weight


F = TypeVar("F", bound=Flow)


class Line(Generic[F]):
    """Flows by start tag, ties in turn. A flow leaves when its `line` is changed; its entry stays for its return, until
    it reaches the top. Entries are updated there, so a flow whose tag falls meanwhile is at most one message late.
    """

    __slots__ = ("_most", "_ticket", "entries")

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, F]] = []  # some are stale: see `first`
        self._ticket = 0
        self._most = _FEW  # number of entries at which stale ones are removed

    def enter(self, flow: F) -> None:
        if flow.entered is not self or flow.noted > flow.start:
            self._push(flow)
        flow.line = self  # type: ignore[assignment]

    def _push(self, flow: F) -> None:
        self._ticket += 1
        heappush(self.entries, self._entry(flow))
        if len(self.entries) > self._most:
            self.entries[:] = [each for each in self.entries if self._is_current(each)]
            heapify(self.entries)
            self._most = 2 * len(self.entries) + _FEW

    def _is_current(self, entry: tuple[int, int, F]) -> bool:
        _, ticket, flow = entry
        return flow.ticket == ticket and flow.entered is self

    def _entry(self, flow: F) -> tuple[int, int, F]:
        flow.entered, flow.noted, flow.ticket = self, flow.start, self._ticket  # type: ignore[assignment]
        return flow.start, self._ticket, flow

    def on_fall(self, flow: F) -> None:
        """A correction was in the flow's favour. If it exceeds a message's worth, the flow moves forward at once."""
        if flow.noted - flow.start > flow.mean * flow.scale:
            self._push(flow)

    def on_charge(self, flow: F) -> None:
        """The flow's tag has grown; usually the flow is the first."""
        entries = self.entries
        if flow.line is self and entries[0][1] == flow.ticket:
            ticket = flow.ticket = self._ticket = self._ticket + 1
            start = flow.noted = flow.start
            heapreplace(entries, (start, ticket, flow))

    def first(self) -> F | None:
        """The flow whose turn it is; None if there is none."""
        entries = self.entries
        while entries:
            start, ticket, flow = entries[0]
            if flow.ticket != ticket or flow.entered is not self:
                heappop(entries)
            elif flow.line is not self:
                heappop(entries)
                flow.entered = None
            elif flow.start > start:
                self._ticket += 1
                heapreplace(entries, self._entry(flow))
            else:
                return flow
        return None


class VirtualTime:
    """Charges flows. Without `fair`, nothing is charged: flows take turns."""

    __slots__ = ("_fair", "_highest", "_mean", "now")

    def __init__(self, *, fair: bool = True) -> None:
        self.now = 0
        self._highest = 0  # highest start tag of flows that have left
        self._fair = fair
        self._mean = _FIRST_GUESS  # of flows' first messages: the estimate for a new flow

    def reweigh(self, flow: Flow, weight: float) -> None:
        """Set the weight, above 0. Charges ahead of the other flows are converted to it, so that it takes effect at
        once (X4). Running messages are corrected by the weights under which they began, if those were higher; otherwise
        many small corrections at a weight of 50 would be worth whole messages at a weight of 1, all at once.
        """
        before = flow.scale
        if weight == flow.weight:
            return
        flow.weigh(weight)
        if self._fair:
            flow.start += int(flow.owed * before)
            flow.owed = 0.0
            if flow.running:
                flow.previous_scale = before + (flow.previous_scale - before) * flow.previous / flow.running
                flow.previous = float(flow.running)
        ahead = flow.start - self.now
        if ahead > 0:
            flow.start = self.now + int(ahead * flow.scale / before)

    def catch_up(self, flow: Flow) -> None:
        """The flow begins to ask, or may continue after one of its own rules held it up."""
        if flow.start < self.now:
            flow.start = self.now

    def leave(self, flow: Flow, *, last: bool) -> None:
        """The flow has no messages any more. When the last one leaves, all start over: service that no other flow
        wanted isn't counted.
        """
        self._highest = max(self._highest, flow.start)
        if last:
            self.now = max(self.now, self._highest)

    def charge(self, flow: Flow, first: Flow) -> float:
        """Charge the estimated cost of one message, and return it (ns). `first` is the flow whose turn it is, usually
        `flow` itself.
        """
        if first.start > self.now:
            self.now = first.start
        flow.running += 1
        if not self._fair:
            return 0.0
        cost = flow.mean or self._mean
        owed = flow.owed
        if owed:
            flow.owed = 0.0
        flow.start += int((cost + owed) * flow.scale)
        flow.charged += cost
        return cost

    def refund(self, flow: Flow, count: int) -> None:
        """`count` charged messages did not start: each counts as charged with the mean of all in flight."""
        cost = flow.charged * count / flow.running
        scale = self._scale_of_last(flow, count) if flow.previous else flow.scale
        flow.running -= count
        flow.charged = flow.charged - cost if flow.running else 0.0
        flow.start -= int(cost * scale)

    def correct(self, flow: Flow, service: int, count: int) -> None:
        """`count` messages have taken `service` ns together; each counts as charged with the mean of all in flight."""
        running = flow.running
        if running == count:
            cost = flow.charged
            flow.charged = 0.0
        else:
            cost = flow.charged * count / running
            flow.charged -= cost
        flow.running = running - count
        if count == 1:
            each = took = service + OVERHEAD
        else:
            took = service + OVERHEAD * count
            each = took / count
        mean = flow.mean
        if mean:
            flow.mean = mean + (each - mean) / _SMOOTHING
        else:
            flow.mean = each
            self._mean += (each - self._mean) / _SMOOTHING
        if flow.previous:
            flow.start += int((took - cost) * self._scale_of_any(flow, running, count))
        elif self._fair:
            owed = flow.owed = flow.owed + took - cost
            if owed > mean or -owed > mean:
                flow.start += int(owed * flow.scale)
                flow.owed = 0.0

    @staticmethod
    def _scale_of_any(flow: Flow, running: int, count: int) -> float:
        """The scale by which `count` of the `running` messages are corrected when they end: the mean of all, but no
        more than that of the present weight.
        """
        part = flow.previous / running
        flow.previous = flow.previous - part * count if count < running else 0.0
        if flow.previous < _NONE:
            flow.previous = 0.0
        return flow.scale + min(0.0, flow.previous_scale - flow.scale) * part

    @staticmethod
    def _scale_of_last(flow: Flow, count: int) -> float:
        """The scale by which `count` messages are refunded: that of those charged last."""
        previous = max(0.0, count - (flow.running - flow.previous))
        flow.previous -= previous
        return flow.scale + min(0.0, flow.previous_scale - flow.scale) * previous / count
