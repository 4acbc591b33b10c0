"""X10: isolation on real servers, next to an unfair control.

The product, the control and the mutants are whole nodes that serve the same load on the same servers at the same time.
A busy machine slows all of them down alike, and what counts is the order of starts. So only an arm that isolates
nothing can look like the control.
"""

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack, contextmanager

import pytest

from evenlane import Settings
from tests.integration.proof.isolation import mutants
from tests.integration.proof.isolation.arm import VICTIMS, Arm, Rounds
from tests.support.streams import delete_streams

pytestmark = pytest.mark.real

SCHEDULERS = {
    "product": None,
    "control": mutants.fifo,
    "fifo": mutants.fifo,
    "quota without fairness": mutants.quota_without_fairness,
    "fair without quota": mutants.fair_without_quota,
}
BACKLOG = 100  # messages of each flood before the first victim puts
ROUNDS, FLOOD, AT_ONCE = 40, 2, 2  # in each round: messages of each flood, and victims that put one message
MOST_PASSED, MOST_WAIT, LEAST_SERVED = 1 / 10, 1 / 5, 1 / 2
BURNING = 4  # processes that compute beside the run
TIMEOUT_S = 240


@contextmanager
def burning(count):
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def serve_load(arms, rounds):
    await asyncio.gather(*(arm.put(BACKLOG) for arm in arms))
    for number in range(ROUNDS):
        victims = [VICTIMS[(AT_ONCE * number + place) % len(VICTIMS)] for place in range(AT_ONCE)]
        await asyncio.gather(*(arm.put(FLOOD, victims) for arm in arms))
        await rounds.end()
    for arm in arms:
        arm.end_load()
    while not all(arm.has_served_all for arm in arms):
        await rounds.end()


async def run(nats, etcd, prefix):
    """The figures of each arm. The names of their environments begin with `prefix`."""
    rounds, arms = Rounds(), {}
    async with asyncio.timeout(TIMEOUT_S), AsyncExitStack() as serving:
        for number, name in enumerate(SCHEDULERS):
            env = f"{prefix}{number}"
            serving.push_async_callback(delete_streams, nats.url, env)
            settings = Settings(nats=(nats.url,), etcd=(etcd.endpoint,), env=env, node=env)
            arms[name] = Arm(settings, SCHEDULERS[name], rounds)
        await asyncio.gather(*(serving.enter_async_context(arm.serving()) for arm in arms.values()))
        serving.callback(rounds.close)
        await serve_load([*arms.values()], rounds)
        return {name: arm.figures for name, arm in arms.items()}


@pytest.fixture(scope="module", params=["alone", pytest.param("beside", marks=pytest.mark.full)])
def figures(request, nats_server, etcd_server):
    """The figures of one run, alone or beside processes that keep the machine busy."""
    with burning(BURNING if request.param == "beside" else 0):
        return asyncio.run(run(nats_server, etcd_server, request.param))


def find_faults(tested, control):
    """The ways in which an arm lacks isolation, compared with the control of the same run."""
    faults = {
        "passed": tested.passed_by > MOST_PASSED * control.passed_by,
        "wait": tested.wait_s > MOST_WAIT * control.wait_s,
        "served": tested.served < control.served + LEAST_SERVED,
        "quota": tested.above_quota > 0,
    }
    return {fault for fault, is_found in faults.items() if is_found}


def test_floods_delay_no_victim(figures):
    """X10, E18, V, Q: victims wait a fraction of what they wait in the control, while one project floods far beyond its
    quota, and one within a quota that is larger than the node.
    """
    assert set() == find_faults(figures["product"], figures["control"]), figures


@pytest.mark.parametrize(
    ("mutant", "faults"),
    [
        ("fifo", {"passed", "wait", "served", "quota"}),
        ("quota without fairness", {"passed", "wait", "served"}),
        ("fair without quota", {"quota"}),
    ],
)
def test_mutant_is_caught(figures, mutant, faults):
    """X10: the same bars fail for a scheduler that lacks a part of isolation, in the product's place."""
    assert faults <= find_faults(figures[mutant], figures["control"]), figures
