"""The broker runner on a real nats-server, with loads of some seconds. No bars: they need a quiet machine."""

import asyncio
import os

import msgspec
import nats
import psutil
import pytest

from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.broker.child import SIZE, write_record
from evenlane.engine.proof.broker.putter import PutReport, Putter
from evenlane.engine.proof.load.load import Arrival, Load, tenant
from evenlane.engine.proof.runners.one_node import Broker
from evenlane.engine.proof.scenario import silent
from evenlane.engine.proof.scenarios.hot import HotBurst
from evenlane.engine.proof.scenarios.scale.scenario import ScaleScenario, ScaleSize, ScaleSizes
from tests.integration.proof.scenarios.served import run_until_served

pytestmark = pytest.mark.real

UVLOOP_TICK = 2_000_000  # ns; its timers have whole ms, and may fire that much early


async def streams_of(url):
    client = await nats.connect(url)
    try:
        return [info.config.name for info in await client.jetstream().streams_info()]
    finally:
        await client.close()


async def test_scenario_runs_all_arms_and_leaves_no_stream(url):
    """X10: the same load on a real broker, for the product and its control."""
    reported = []

    async def run(scale):
        reported.clear()
        return await HotBurst(scale).run_on_broker(url, 1, 1, lambda _what, share: reported.append(share))

    report = await run_until_served(run, 0.02, ("with hot", "served"), ("with hot", "hot_served"))
    names = ["without hot", "with hot", "fifo"]
    assert [*names, *(f"{name} (simulator)" for name in names)] == list(report.arms)
    for name in names:
        assert report.arms[name]["offered"] == report.arms[f"{name} (simulator)"]["offered"]
        assert 0 == report.arms[name]["handled_twice"]
    assert all(bar.simulator is not None and bar.scenario_limit is not None for bar in report.bars[:3])
    assert (sorted(reported), 1.0) == (reported, reported[-1])
    assert [] == await streams_of(url)


async def test_trace_has_put_start_and_end_in_order(url):
    arm = HotBurst(0.02).arms(1)["without hot"]
    trace = await Broker(url, 50).run(arm, lambda _share: None)
    assert any(map(trace.was_handled, range(len(arm.load))))
    for n, each in enumerate(arm.load):
        assert each.at - UVLOOP_TICK <= trace.put[n]
        if trace.ended[n] > 0:
            assert trace.put[n] < trace.started[n]
            assert each.service - UVLOOP_TICK <= trace.ended[n] - trace.started[n]


async def test_scale_counts_messages_end_to_end(url):
    sizes = ScaleSizes(
        (ScaleSize(30, 10), ScaleSize(60, 10), ScaleSize(90, 10)), (ScaleSize(30, 30), ScaleSize(60, 60))
    )
    report = await ScaleScenario(sizes, decisions=50, messages=300).run_on_broker(url, 1, 1, silent)
    assert report.arms["10 busy of 90"]["end_to_end_per_s"] > 0
    assert {"end to end", "dispatch", "decision", "us a decision", "steps a decision", "scanning"} == {
        bar.name.split(":")[0].split(", ")[0] for bar in report.bars
    }
    assert [] == await streams_of(url)


async def test_failed_put_ends_run_with_reason(url):
    load = Load.of([tenant("acme", qps=1)], [Arrival(0, 0, 0, 1, 0)], 0)
    async with Putter(url, "bench-without-streams", load) as putter:
        with pytest.raises(EvenlaneError, match="the scenario was aborted: Lost: no stream takes this subject"):
            await putter.put(0)


def test_record_is_complete_over_partial_writes(monkeypatch, capfdbinary):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, left: write(fd, left[:1_000]))
    write_record(PutReport(sent=bytes(5_000)))
    raw = capfdbinary.readouterr().out
    assert SIZE.unpack(raw[: SIZE.size]) == (len(raw) - SIZE.size,)
    assert 5_000 == len(msgspec.msgpack.decode(raw[SIZE.size :], type=PutReport).sent)


async def test_end_of_putter_process_is_reported(url):
    load = Load.of([tenant("acme", qps=1)], [], 0)
    me = psutil.Process()
    before = {*me.children(recursive=True)}
    async with Putter(url, "bench-x", load) as putter:
        [process] = {*me.children(recursive=True)} - before
        process.kill()
        with pytest.raises(EvenlaneError, match="the process that puts has ended"):
            await asyncio.wait_for(putter.put(0), 60)
