"""The scenario `push` for some seconds on a real nats-server and real endpoints; and the behaviour of its endpoints."""

import asyncio

import aiohttp
import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.proof.scenario import silent
from evenlane.engine.proof.scenarios.push.endpoints import EndpointPhase, EndpointPlan, EndpointServer
from evenlane.engine.proof.scenarios.push.scenario import BAD, PushScenario
from tests.integration.proof.scenarios.served import run_until_served
from tests.support.until import until


@pytest.mark.real
async def test_all_arms_run_and_healthy_endpoints_are_served(url):
    """E17, X10: no bars here, as they need a quiet machine."""

    async def run(scale):
        return await PushScenario(scale).run_on_broker(url, 1, 1, silent)

    report = await run_until_served(run, 0.06, ("with bad", "served"), ("with bad", "bad_served"))
    names = ["without bad", "with bad", "plain pool"]
    assert [*names, *(f"{name} (simulator)" for name in names)] == list(report.arms)
    without, bad = report.arms["without bad"], report.arms["with bad"]
    assert (0, 0) == (without["handled_twice"], bad["handled_twice"])
    assert (0, 0) == (without["failed_pushes"], without["bad_served"])
    assert bad["served"] > report.arms["plain pool"]["served"]


def test_arms_differ_only_in_bad_endpoint():
    arms = PushScenario(0.1).arms(1)
    assert list(arms["with bad"].load.without(BAD)) == list(arms["without bad"].load)
    assert list(arms["with bad"].load) == list(arms["plain pool"].load)
    assert 50 == len(arms["with bad"].load.tenants)


async def answer(session, port):
    """The status, or the kind of failure."""
    try:
        async with asyncio.timeout(0.3), session.post(f"http://127.0.0.1:{port}/") as response:
            await response.content.readexactly(1_000_000)
            return "huge"
    except asyncio.IncompleteReadError:
        return response.status
    except TimeoutError:
        return "silent"
    except aiohttp.ClientConnectionError:
        return "dead"


@pytest.mark.parametrize(
    ("kind", "expected"), [("huge", {"huge"}), ("silent", {"silent"}), ("dead", {"dead"}), ("flapping", {204, 500})]
)
async def test_bad_endpoint_follows_its_phase(kind, expected):
    plan = EndpointPlan(1, 0.01, 0.1, (EndpointPhase(kind, 0, 60),))
    async with EndpointServer(plan) as endpoints, aiohttp.ClientSession() as session:

        async def answer_in_time():
            """The answer; a busy machine may take too long for it."""
            came = await answer(session, endpoints.ports[0])
            return None if came == "silent" else came

        assert 204 == await until(answer_in_time)
        await endpoints.begin(now_ns())
        seen = set()

        async def all_seen():
            seen.add(await answer(session, endpoints.ports[0]))
            return expected <= seen

        await until(all_seen)
