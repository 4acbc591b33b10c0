"""E3, Q, X10: a scenario of some seconds over three nodes, each a process, on real servers. No bars on times: they need
a quiet machine.
"""

from dataclasses import replace

import pytest
from msgspec import structs

from evenlane.engine.proof.baselines.schedulers import WholeQuota
from evenlane.engine.proof.cluster.records import HandlerRecord, HandlerRecords, pack_record
from evenlane.engine.proof.load.load import Arrival, Load, tenant
from evenlane.engine.proof.load.placement import NAMES, place_groups
from evenlane.engine.proof.load.trace import NEVER, Trace
from evenlane.engine.proof.runners.several_nodes import NodesBroker, fill
from evenlane.engine.proof.scenarios.reserve import ReserveScenario
from evenlane.engine.proof.scenarios.skewed_quota import SHARED, WHOLE_BEYOND, SkewedQuota


def test_records_of_nodes_become_trace(tmp_path):
    """A message started by two nodes counts for the first; a truncated record is ignored."""

    def record(number, began, at):
        return pack_record(HandlerRecord(at, 0, 1, 1, 0, 1, 1, began, "lanes", False, "acme", "", number=number))

    (tmp_path / NAMES[0]).write_bytes(record(0, True, 110) + record(0, False, 150) + record(1, True, 130))
    (tmp_path / NAMES[1]).write_bytes(record(1, True, 120) + record(1, False, 140) + record(2, True, 1)[:-1])
    records = HandlerRecords(tmp_path).read()
    trace = Trace(Load.of([tenant("acme", qps=1)], [Arrival(0, 0, 0, 1, 0)] * 3, 100))
    assert 1 == fill(trace, 100, records, NAMES)
    assert ([10, 20, NEVER], [50, 40, NEVER], [0, 1, NEVER]) == (
        list(trace.started),
        list(trace.ended),
        list(trace.node),
    )


def test_control_gives_each_node_whole_quota():
    """The control of Q: it turns a third of a quota into the whole; all else is up to the scheduler."""

    class Recorder:
        def configure(self, *arguments):
            self.recorded = arguments

        def next(self, now):
            return now

    recorder, part = Recorder(), tenant("acme", qps=100).topic
    whole = WholeQuota(recorder, 3)
    whole.configure("acme", part, 7, 300.0)
    assert ("acme", structs.replace(part, qps=300.0), 7, 300.0) == recorder.recorded
    whole.configure("acme", None, 7)
    assert None is recorder.recorded[1]
    assert 5 == whole.next(5)


@pytest.mark.full
@pytest.mark.real
async def test_three_nodes_keep_quota_and_control_breaks_it(url):
    """Q: with a real leader, leases, plans and messages between nodes."""
    arms, broker = SkewedQuota(0.1).arms(1), NodesBroker(url, 50, 3)
    trace = await broker.run(arms[SHARED], lambda _share: None)
    assert {0, 1, 2} == {node for node in trace.node if node != NEVER}
    where, load = trace.where, trace.load
    for number, node in enumerate(trace.node):
        assert node in (NEVER, where.node_of(load.tenants[0], load.group[number]))
        assert NEVER == trace.started[number] or trace.put[number] < trace.started[number]
    figures = arms[SHARED].read(trace)
    assert figures["worst_1s_over_quota"] <= 1.10
    assert figures["served"] > 0.5
    assert 0 == trace.figures["handled_twice"]
    control = arms[WHOLE_BEYOND].read(await broker.run(arms[WHOLE_BEYOND], lambda _share: None))
    assert control["worst_1s_over_quota"] > 1.10


@pytest.mark.full
@pytest.mark.real
async def test_unfair_scheduler_runs_over_nodes(url):
    """X10: the unfair controls: round robin ignores weights and reserves."""
    arm = ReserveScenario(0.1, 2).arms(1)["no rules"]
    load = arm.load
    few = replace(arm, load=Load.of(load.tenants, list(load)[:2_000], load.until, load.cluster_config))
    trace = await NodesBroker(url, 50, 2).run(few, lambda _share: None)
    assert {0, 1} == {node for node in trace.node if node != NEVER}
    assert place_groups(load, 2).nodes == trace.where.nodes
