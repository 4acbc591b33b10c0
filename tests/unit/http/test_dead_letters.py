"""Dead letters by HTTP: who replays for hours stands in nobody's way."""

import asyncio
from contextlib import asynccontextmanager
from operator import itemgetter
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from evenlane.engine.errors import EvenlaneError
from evenlane.engine.http import dead_letters as module
from evenlane.engine.http.dead_letters import DeadLetterRoutes, ReplayRuns
from evenlane.engine.http.errors import status_of


class Stored:
    """Replays end when `going` is set, reads when `reading` is."""

    def __init__(self):
        self.going, self.reading, self.opened = asyncio.Event(), asyncio.Event(), 0
        self.reading.set()
        self.fails = None

    async def count(self, _project):
        await self.reading.wait()
        return 0

    async def kept(self):
        return 0

    async def replay(self, _project, _sequence, on_progress):
        await self.going.wait()
        if self.fails is not None:
            raise self.fails
        return SimpleNamespace(replayed=1, failed=[], stopped="")


@pytest.fixture
def stored(monkeypatch):
    stored = Stored()

    @asynccontextmanager
    async def opened(_settings):
        stored.opened += 1
        yield stored

    monkeypatch.setattr(module, "opened", opened)
    return stored


async def test_replays_that_take_hours_keep_nobody_from_reading(stored):
    dead_letters = DeadLetterRoutes(None, soon_s=0.01)
    for number in range(4):
        assert (await dead_letters.replay(f"p{number}", None))["running"]
    with pytest.raises(ReplayRuns, match="this node replays dead letters of 4 projects already") as refused:
        await dead_letters.replay("p4", None)
    assert 409 == status_of(refused.value)
    assert 0 == (await asyncio.wait_for(dead_letters.list("acme", 1), 10))["total"]
    stored.going.set()
    await asyncio.gather(*dead_letters._replays.values())
    assert not (await dead_letters.replay("p4", None))["running"]
    await dead_letters.close()


@pytest.mark.parametrize(
    ("error", "sentence", "level"),
    [
        (EvenlaneError("the topic acme is gone"), "the topic acme is gone", "warning"),
        (ZeroDivisionError("secret"), "a defect of the node ended it: its log says more", "error"),
    ],
)
async def test_how_a_long_replay_ended_is_told_to_who_looks(stored, error, sentence, level):
    """Its own answer said that it goes on; it can't say more."""
    dead_letters = DeadLetterRoutes(None, soon_s=0.01)
    assert (await dead_letters.replay("acme", None))["running"]
    assert (await dead_letters.list("acme", 1))["last_replay"] is None
    stored.fails = error
    stored.going.set()
    with capture_logs() as logs:
        await asyncio.gather(*dead_letters._replays.values(), return_exceptions=True)
    assert [level] == [line["log_level"] for line in logs if line["event"] == "dead letters could not be replayed"]
    end = (await dead_letters.list("acme", 1))["last_replay"]
    assert (False, 0, sentence) == (end["running"], end["replayed"], end["stopped"])
    stored.fails = None
    assert not (await dead_letters.replay("acme", None))["running"]
    assert ("", 1) == itemgetter("stopped", "replayed")((await dead_letters.list("acme", 1))["last_replay"])


async def test_more_who_read_than_are_served_are_refused(stored):
    """Rather than put into a line; each has a connection of its own."""
    dead_letters = DeadLetterRoutes(None, soon_s=0.01)
    stored.reading.clear()
    asked = [asyncio.create_task(dead_letters.list("acme", 1)) for _ in range(20)]
    done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert (12, 8, 8) == (len(done), len(waiting), stored.opened)
    for each in done:
        with pytest.raises(EvenlaneError, match="dead letters are being read for 8 already: ask again"):
            each.result()
    stored.reading.set()
    await asyncio.gather(*waiting)
    await dead_letters.list("acme", 1)
