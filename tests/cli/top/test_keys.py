"""`evenlane top` in a terminal: what each key does, on figures of the test's own (Issue 7.5)."""

from contextlib import asynccontextmanager

import pytest
from textual import events
from textual.widgets import Input, OptionList, Static
from textual.worker import WorkerFailed

from evenlane.engine.admin.overview.messages import Band, Row
from evenlane.engine.cli.top.app import TopApp
from evenlane.engine.cli.top.dialogs import Confirm, Help
from evenlane.engine.cli.top.list_widget import TenantList
from evenlane.engine.cli.top.view_state import ViewState
from evenlane.engine.errors import EvenlaneError, Unreachable
from tests.cli.top.test_top import ACME, EXAMPLE, IDLE, PAUSED, shown
from tests.support.until import until


class Fake:
    """A source whose next overview can be set; it notes what it is asked. `fails` is raised by overviews."""

    def __init__(self, document):
        self.document, self.looks, self.asked, self.switched = document, 0, [], []
        self.fails: Exception | None = None

    async def overview(self):
        self.looks += 1
        if self.fails is not None:
            raise self.fails
        return self.document

    async def why(self, project):
        self.asked.append(project)
        if project == "globex":
            raise EvenlaneError("no answer came")
        return {
            "project": project, "backlog": 7, "oldest_seconds": 5.2, "in_flight": 0, "priorities": [],
            "rates": {"sentence": "none"}, "forecast": {"sentence": "gone soon"}, "notes": [],
        }  # fmt: skip

    async def switch(self, project, verb):
        self.switched.append((project, verb))
        if project == "initech":
            raise EvenlaneError("topic initech is draining")
        return f"{project}: done"


@asynccontextmanager
async def running(document=EXAMPLE, size=(100, 30)):
    """What it shows changes when the test says so, by `look`."""
    fake = Fake(document)
    app = TopApp(fake, ViewState(), 600.0, document)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, fake, pilot


async def look(app, fake, document=None):
    """The interval is over; returns when it has looked."""
    fake.document, looks = document or fake.document, fake.looks
    app._wake.set()
    await until(lambda: fake.looks > looks)
    await app.animator.wait_until_complete()


def listed(app):
    return [str(option.prompt).split()[0] for option in app.query_one(TenantList).options]


def text(app, name):
    part = app.query_one(f"#{name}", Static)
    return str(part.content) if part.display else ""


async def pressed(pilot, *keys):
    await pilot.press(*keys)
    await pilot.pause()


async def test_it_shows_what_plain_shows():
    async with running() as (app, *_):
        assert ["acme", "mid", "globex", "initech"] == listed(app)
        assert text(app, "columns").startswith("PROJECT  PRIORITY  BACKLOG▼")
        assert "55 wait" in text(app, "head")
        assert text(app, "nodes").splitlines()[1].startswith("a*")
        assert "4,900 less busy projects" in text(app, "rest")
        assert "" == text(app, "said")


async def test_sorting():
    """By the next column and back, the other way round, and by a click on a column's name."""
    async with running() as (app, _, pilot):
        await pressed(pilot, "s")
        assert ("oldest", ["globex", "acme"]) == (app.choice.sort, listed(app)[:2])
        assert "OLDEST▼" in text(app, "columns")
        await pressed(pilot, "r")
        assert ("initech", True) == (listed(app)[0], "OLDEST▲" in text(app, "columns"))
        await pressed(pilot, "S", "S")
        assert ("name", False, ["acme", "mid", "globex", "initech"]) == (
            app.choice.sort, app.choice.reverse, listed(app),
        )  # fmt: skip
        at = text(app, "columns").index("QUOTA")
        await pilot.click("#columns", offset=(at, 0))
        assert "quota" == app.choice.sort
        await pilot.click("#columns", offset=(at, 0))
        assert ("quota", True) == (app.choice.sort, app.choice.reverse)
        at = text(app, "columns").index("PRIORITY")  # nothing is sorted by that
        await pilot.click("#columns", offset=(at, 0))
        assert "quota" == app.choice.sort


async def test_filtering():
    """As it is typed; Enter keeps it, Esc ends it."""
    async with running() as (app, _, pilot):
        app.query_one(TenantList).post_message(events.Key("slash", "/"))  # typed ahead, in one go
        await pressed(pilot, "i", "n")
        assert ["initech"] == listed(app)
        await pressed(pilot, "enter")
        assert (False, ["initech"]) == (app.query_one(Input).display, listed(app))
        await pressed(pilot, "slash", "x")
        assert ([], "none of those that are shown is like this") == (listed(app), text(app, "rest").split("; ")[0])
        await pressed(pilot, "escape")
        assert ["acme", "mid", "globex", "initech"] == listed(app)
        assert (False, "") == (app.query_one(Input).display, app.choice.project)


async def test_one_line_for_each_tenant_and_no_nodes():
    async with running() as (app, _, pilot):
        await pressed(pilot, "t", "n")
        assert (["acme", "globex", "initech"], "") == (listed(app), text(app, "nodes"))
        await pressed(pilot, "t", "n")
        assert (4, True) == (len(listed(app)), bool(text(app, "nodes")))


async def test_pausing_asks_first():
    """Issue 7.5: only after a yes; what came of it is told."""
    async with running() as (app, fake, pilot):
        await pressed(pilot, "p")
        assert isinstance(app.screen, Confirm)
        await pressed(pilot, "n")
        await pressed(pilot, "p", "escape")
        assert ([], False) == (fake.switched, isinstance(app.screen, Confirm))
        before = fake.looks
        await pressed(pilot, "p", "y")
        await until(lambda: text(app, "said") == "acme: done")
        assert [("acme", "pause")] == fake.switched
        await until(lambda: fake.looks > before)  # what came of it is looked at at once


async def test_a_paused_one_is_resumed_and_a_refusal_is_told():
    async with running() as (app, fake, pilot):
        await pressed(pilot, "down", "down", "p", "y")
        await until(lambda: fake.switched)
        assert [("globex", "resume")] == fake.switched
        await pressed(pilot, "down", "p", "y")
        await until(lambda: text(app, "said") == "topic initech is draining")


async def test_without_a_topic_there_is_nothing_to_pause():
    async with running(shown(Row("acme", ACME.bands))) as (app, fake, pilot):
        await pressed(pilot, "p")
        assert (False, []) == (isinstance(app.screen, Confirm), fake.switched)
        assert text(app, "said").startswith("acme has no topic")


async def test_why_of_the_chosen_one():
    """Enter opens it, arrows lead to the next one's, Esc closes it."""
    async with running(size=(80, 24)) as (app, fake, pilot):
        await pressed(pilot, "enter")
        await until(lambda: "gone soon" in text(app, "told"))
        assert (["acme"], "") == (fake.asked, text(app, "nodes"))
        await pressed(pilot, "down")  # still acme's
        await pressed(pilot, "down")
        await until(lambda: text(app, "told") == "no answer came")
        assert ["acme", "globex"] == fake.asked
        await pressed(pilot, "escape")
        assert (False, True) == (app.query_one("#why").display, bool(text(app, "nodes")))


async def test_help_and_freezing():
    async with running() as (app, fake, pilot):
        await pressed(pilot, "question_mark")
        assert isinstance(app.screen, Help)
        await pressed(pilot, "escape", "space")
        assert "FROZEN" in text(app, "head")
        fake.document = shown(IDLE)
        app._wake.set()
        await until(lambda: not app._wake.is_set())
        await pilot.pause()
        assert (0, 4) == (fake.looks, len(listed(app)))
        await pressed(pilot, "space")  # at once
        await until(lambda: listed(app) == ["initech"])


async def test_the_chosen_line_stays_chosen():
    """Figures change under the cursor: it goes with its tenant, and to the first line if that is gone."""
    async with running() as (app, fake, pilot):
        await pressed(pilot, "down", "down")
        assert "globex" == app.query_one(TenantList).tenant["project"]
        busy = Row("globex", [Band(), Band(10**6, reasons={"quota": 1}), Band()], 5, "active", 20.0, 20.0)
        await look(app, fake, shown(ACME, busy, IDLE))
        await until(lambda: listed(app)[0] == "globex")
        assert ("globex", 0) == (app.query_one(TenantList).tenant["project"], app.query_one(TenantList).highlighted)
        await look(app, fake, shown(ACME, IDLE))
        await until(lambda: len(listed(app)) == 3)
        assert "acme" == app.query_one(TenantList).tenant["project"]
        await look(app, fake, shown())
        await until(lambda: listed(app) == [])
        await pressed(pilot, "enter", "p")
        assert ([], []) == (fake.asked, fake.switched)
        await look(app, fake, shown(PAUSED))
        await until(lambda: listed(app) == ["globex"])


async def test_a_connection_that_is_lost_is_a_line_and_it_goes_on():
    async with running() as (app, fake, _):
        fake.fails = Unreachable("there is no connection to NATS at the moment")
        await look(app, fake)
        await until(lambda: text(app, "said").startswith("connection lost, what is shown is old"))
        assert 4 == len(listed(app))
        fake.fails = None
        await look(app, fake, shown(IDLE))
        await until(lambda: listed(app) == ["initech"])
        assert "" == text(app, "said")


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (200, 60)])
async def test_it_fits_and_is_resized(size):
    """Issue 7.5: the list, with the chosen line seen, has room at 80 x 24, and in smaller ones."""
    async with running(size=(120, 30)) as (app, _, pilot):
        await pilot.resize_terminal(*size)
        await pilot.pause()
        assert app.query_one(TenantList).size.height >= 2
        if size[0] >= 80:
            assert max(map(len, text(app, "columns").splitlines())) < size[0]


async def test_the_chosen_line_is_seen_without_colours():
    async with running() as (app, _, pilot):
        await pressed(pilot, "down")
        listing = app.query_one(TenantList)
        reversed_ = [any(part.style and part.style.reverse for part in listing.render_line(y)) for y in range(3)]
        assert [False, True, False] == reversed_
        assert isinstance(listing, OptionList)


async def test_a_defect_ends_it_without_a_traceback_on_the_screen():
    """Whoever has started it gets the error; the terminal is given back by then."""
    fake = Fake(EXAMPLE)
    app = TopApp(fake, ViewState(), 0.01, EXAMPLE)
    fake.fails = RuntimeError("broken")
    with pytest.raises(WorkerFailed):  # that is Textual's own, for tests
        await _until_it_ends(app)
    assert fake.fails is app.defect
    assert [] == app._exit_renderables


async def _until_it_ends(app):
    async with app.run_test():
        await until(lambda: not app.is_running)
