"""`evenlane replay` on real servers: a stretch of what was handled is handled again, by one subscription (K3, K10)."""

import asyncio
import json
import sys
from collections import Counter

import pytest

from evenlane import Producer, Put
from evenlane.engine.base.config.settings import load
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real

REPLAY = ("replay", "acme", "--from", "1h", "--to", "2200-01-01T00:00:00Z")
COMMAND = [sys.executable, "-c", "from evenlane.engine.cli.main import main; main()"]


async def run(*arguments):
    """Run `evenlane replay acme` in a process of its own, for all times. Returns exit code and output."""
    process = await asyncio.create_subprocess_exec(*COMMAND, *REPLAY, *arguments, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_one_subscription_handles_a_stretch_again(env, evenlane_in_thread):
    """K3, K10: a third subscription holds the messages. What is repeated is stored once."""
    seen, audited = Counter(), Counter()

    async def note(message):
        seen[message.id] += 1

    async def audit(message):
        assert message.attempt == 1
        audited[message.id] += 1

    for name in ("audit", "billing"):
        assert 0 == (await evenlane_in_thread("subscriptions", "create", name))[0]
    async with running_engine(load({"node": "worker-1"}).settings, note):
        own = load({"subscription": "audit", "node": "audit-1"}).settings
        async with running_engine(own, audit):
            for number in range(5):
                await evenlane_in_thread(
                    "put", "acme", "an order", "--id", f"order-{number}", "--key", f"k{number % 2}"
                )

            async def counts(*options):
                _, out = await run(*options, "--dry-run", "--json")
                found = json.loads(out)
                return found["messages"], found["waiting"]

            async def are_settled():
                return [(5, 0)] * 2 == [await counts(), await counts("--subscription", "audit")]

            await until(are_settled, 60, "all to be settled")
            assert (2, 0) == await counts("--subscription", "audit", "--key", "k1")

            for said in ("replayed 5", "replayed 0; an earlier replay had put the other 5"):
                assert (0, f"{said}\n") == await run("--subscription", "audit", "--yes")
            await until(lambda: audited.total() == 10, 60, "the replays for audit")
            assert (0, "replayed 3\n") == await run("--key", "k0", "--yes")
            await until(lambda: seen.total() == 8, 60, "the replays for the unnamed one")
    assert {2} == {*audited.values()}
    assert {"order-0": 2, "order-1": 1, "order-2": 2, "order-3": 1, "order-4": 2} == seen


@pytest.mark.parametrize("env", [{"DUPLICATE_WINDOW": "10m"}], indirect=True)
async def test_killed_replay_is_completed_by_the_next(env, evenlane_in_thread):
    """K3: nothing is replayed twice within the duplicate window."""
    seen = Counter()

    async def note(message):
        seen[message.id] += 1

    assert 0 == (await evenlane_in_thread("subscriptions", "create", "audit"))[0]
    async with running_engine(load({"node": "worker-1"}).settings, note), Producer() as producer:
        await producer.put_many([Put("acme", b"an order", id=f"order-{number}") for number in range(200)])

        async def are_settled():
            return 200 == json.loads((await run("--dry-run", "--json"))[1])["messages"]

        await until(are_settled, 60, "all to be settled")
        killed = await asyncio.create_subprocess_exec(*COMMAND, *REPLAY, "--yes", "--rate", "100")
        await until(lambda: seen.total() > 250, 60, "a part of the replays")
        killed.kill()
        await killed.wait()
        code, out = await run("--yes", "--rate", "5000", "--json")
        result = json.loads(out)
        assert (0, 200) == (code, result["replayed"] + result["duplicates"])
        assert result["duplicates"] >= 50
        await until(lambda: seen.total() >= 400, 60, "all replays")
    assert {2} == {*seen.values()}


WRONG = """
replay acme --from 1h
replay acme --from soon --to 1h
replay acme --from 2200-01-01T00:00:00Z --to 2201-01-01T00:00:00Z --yes
replay acme --from 2026-01-31T09:00:00Z --to 2026-01-31T08:00:00Z --yes
replay acme --from 2026-01-31T09:00:00Z --to 2026-01-31T09:00:00Z --yes
replay nobody --from 2026-01-31T08:00:00Z --to 2026-01-31T09:00:00Z --yes
replay a.b --from 2026-01-31T08:00:00Z --to 2026-01-31T09:00:00Z --yes
replay acme --from 2026-01-31T08:00:00Z --to 2026-01-31T09:00:00Z
replay acme --from 2026-01-31T08:00:00Z --to 2026-01-31T09:00:00Z --subscription audt --yes
replay acme --from 2026-01-31T08:00:00Z --to 2026-01-31T09:00:00Z --subscription audit --yes
replay acme --from 2026-01-31T08:00:00Z --to 2026-01-31T09:00:00Z --key '' --yes
replay acme --from 2026-01-31T08:00:00Z --to 2026-01-31T09:00:00Z --env nowhere --yes
"""


def test_wrong_use_is_one_sentence(env, transcript, evenlane):
    """K10: bad times, an unknown project, subscription or environment, one that gets no such messages."""
    evenlane("subscriptions", "create", "audit", "--projects", "orders-*")
    transcript.fail(WRONG)
    transcript.check()


def test_nothing_to_replay_is_said(env, transcript):
    """K3: nothing is asked either."""
    transcript("replay", "acme", "--from", "2026-01-31T08:00:00Z", "--to", "2026-01-31T09:00:00Z", "--dry-run")
    transcript("replay", "acme", "--from", "2026-01-31T08:00:00Z", "--to", "2026-01-31T09:00:00Z", "--yes")
    transcript.check()
