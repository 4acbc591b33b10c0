"""Dead letters by HTTP: long replays don't delay other requests."""

import asyncio
from contextlib import asynccontextmanager
from operator import itemgetter
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from evenlane.engine.admin.dead_letters.by_error import ErrorTally, Selection
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.http import dead_letters as module
from evenlane.engine.http.dead_letter_jobs import ReplayInProgress
from evenlane.engine.http.dead_letters import DeadLetterService
from evenlane.engine.http.errors import status_of
from tests.support.until import until


class Stored:
    """Replays end when `going` is set, reads when `reading` is."""

    def __init__(self):
        self.going, self.reading, self.opened = asyncio.Event(), asyncio.Event(), 0
        self.reading.set()
        self.fails = None
        self.newest, self.tallied = 7, 0

    async def count(self, _project):
        await self.reading.wait()
        return 0

    async def kept(self):
        return 0

    async def replay(self, _project, _sequence, selection, on_progress):
        await self.going.wait()
        if self.fails is not None:
            raise self.fails
        return SimpleNamespace(replayed=1, failed=[], stopped="")

    async def drop(self, _project, _sequence, selection, on_progress):
        on_progress(2, 5)
        await self.going.wait()
        if self.fails is not None:
            raise self.fails
        return 5

    async def last(self):
        return self.newest

    async def by_error(self, _project):
        self.tallied += 1
        return ErrorTally()


@pytest.fixture
def stored(monkeypatch):
    stored = Stored()

    @asynccontextmanager
    async def opened(_settings):
        stored.opened += 1
        yield stored

    monkeypatch.setattr(module, "opened", opened)
    return stored


async def last_replay(dead_letters):
    return (await dead_letters.list("acme", 1))["last_replay"]


async def test_long_replays_do_not_delay_reads(stored):
    dead_letters = DeadLetterService(None, soon_s=0.01)
    for number in range(4):
        assert (await dead_letters.replay(f"p{number}", None))["running"]
    with pytest.raises(
        ReplayInProgress, match="this node is already replaying or dropping dead letters of 4"
    ) as refused:
        await dead_letters.replay("p4", None)
    assert 409 == status_of(refused.value)
    assert 0 == (await asyncio.wait_for(dead_letters.list("acme", 1), 30))["total"]
    stored.going.set()
    dead_letters._jobs.soon_s = 30  # for replays that end

    async def replayed():
        try:
            return await dead_letters.replay("p4", None)
        except ReplayInProgress:
            return None

    assert not (await until(replayed))["running"]
    await dead_letters.close()


@pytest.mark.parametrize(
    ("error", "sentence", "level"),
    [
        (EvenlaneError("the topic acme is gone"), "the topic acme is gone", "warning"),
        (ZeroDivisionError("secret"), "a defect of the node ended it: see the node's log", "error"),
    ],
)
async def test_result_of_a_long_replay_is_in_later_lists(stored, error, sentence, level):
    """Its own request was answered while it ran."""
    dead_letters = DeadLetterService(None, soon_s=0.01)
    assert (await dead_letters.replay("acme", None))["running"]
    assert await last_replay(dead_letters) is None
    stored.fails = error
    stored.going.set()
    with capture_logs() as logs:
        end = await until(lambda: last_replay(dead_letters))
    assert [level] == [
        line["log_level"] for line in logs if line["event"] == "dead letters could not be replayed or dropped"
    ]
    assert (False, 0, sentence) == (end["running"], end["replayed"], end["stopped"])
    stored.fails = None
    dead_letters._jobs.soon_s = 30  # for a replay that ends
    assert not (await dead_letters.replay("acme", None))["running"]
    assert ("", 1) == itemgetter("stopped", "replayed")(await last_replay(dead_letters))


async def test_excess_reads_are_refused(stored):
    """They don't queue, as each has a connection of its own."""
    dead_letters = DeadLetterService(None, soon_s=0.01)
    stored.reading.clear()
    asked = [asyncio.create_task(dead_letters.list("acme", 1)) for _ in range(20)]
    done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert (12, 8, 8) == (len(done), len(waiting), stored.opened)
    for each in done:
        with pytest.raises(EvenlaneError, match="8 requests are already reading dead letters: try again"):
            each.result()
    stored.reading.set()
    await asyncio.gather(*waiting)
    await dead_letters.list("acme", 1)


async def test_long_drop_shows_its_progress_and_its_end(stored):
    """K4: a replay of the same project is refused meanwhile."""
    dead_letters = DeadLetterService(None, soon_s=0.01)
    with capture_logs() as logs:
        begun = await dead_letters.drop("acme", None, Selection("abc", 9), "ops")
        assert (True, 2, 5) == itemgetter("running", "dropped", "total")(begun)
        assert {"dropped": 2, "total": 5} == (await dead_letters.list("acme", 1))["drop"]
        with pytest.raises(ReplayInProgress, match="the dead letters of acme are already being dropped: wait until"):
            await dead_letters.replay("acme", None)
        stored.going.set()

        async def ended():
            return (await dead_letters.list("acme", 1))["last_drop"]

        end = await until(ended)
    assert {"project": "acme", "running": False, "dropped": 5, "stopped": ""} == end
    [line] = [line for line in logs if line["event"] == "dead letters were dropped by HTTP"]
    assert ("acme", "ops", 5) == itemgetter("project", "by", "dropped")(line)


async def test_failed_drop_tells_how_many_are_gone(stored):
    dead_letters = DeadLetterService(None, soon_s=0.01)
    stored.fails = EvenlaneError("NATS does not answer")
    await dead_letters.drop("acme", None)
    stored.going.set()

    async def ended():
        return (await dead_letters.list("acme", 1))["last_drop"]

    assert (2, "NATS does not answer") == itemgetter("dropped", "stopped")(await until(ended))


async def test_errors_are_read_again_only_after_a_change(stored):
    """An open page asks all the time."""
    dead_letters = DeadLetterService(None)
    for _ in range(3):
        assert [] == (await dead_letters.errors("acme"))["errors"]
    assert 1 == stored.tallied
    stored.newest += 1
    await dead_letters.errors("acme")
    assert 2 == stored.tallied
