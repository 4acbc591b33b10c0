"""`evenlane top` in a terminal: keys and clicks, with figures of the tests."""

from contextlib import asynccontextmanager

import pytest
from textual import events
from textual.widgets import Input, OptionList, Static
from textual.worker import WorkerFailed

from evenlane.engine.admin.overview.messages import Band, Row
from evenlane.engine.cli.top.app import TopApp
from evenlane.engine.cli.top.dialogs import ConfirmDialog, HelpDialog
from evenlane.engine.cli.top.list_widget import TenantList
from evenlane.engine.cli.top.view_state import ViewState
from evenlane.engine.core.status.status import OK
from evenlane.engine.errors import EvenlaneError, Unreachable
from tests.cli.top.test_top import ACME, EXAMPLE, IDLE, PAUSED, shown
from tests.support.until import until


class FakeSource:
    """A source with a given overview, which records questions and changes. Overviews raise `fails`."""

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
            "status": OK.describe(), "also": [], "rates": {"sentence": "none"},
            "forecast": {"sentence": "gone soon"}, "notes": [],
        }  # fmt: skip

    async def switch(self, project, verb):
        self.switched.append((project, verb))
        if project == "initech":
            raise EvenlaneError("topic initech is draining")
        return f"{project}: done"


@asynccontextmanager
async def running(document=EXAMPLE, size=(100, 30)):
    """The app with its source and pilot. It asks for another overview only on `look`."""
    fake = FakeSource(document)
    app = TopApp(fake, ViewState(), 600.0, document)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, fake, pilot


async def look(app, fake, document=None):
    """Have the app ask for an overview; return once it has."""
    fake.document, looks = document or fake.document, fake.looks
    app.wake.set()
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


async def test_screen_shows_the_same_as_plain_output():
    async with running() as (app, *_):
        assert ["acme", "mid", "globex", "initech"] == listed(app)
        assert text(app, "columns").startswith("PROJECT  STATUS▼")
        assert "55 wait" in text(app, "head")
        assert text(app, "nodes").splitlines()[1].startswith("a*")
        assert "4,900 less busy projects" in text(app, "rest")
        assert "" == text(app, "message")


async def test_keys_and_clicks_sort():
    async with running() as (app, _, pilot):
        await pressed(pilot, "s", "s")
        assert ("oldest", ["globex", "acme"]) == (app.choice.sort, listed(app)[:2])
        assert "OLDEST▼" in text(app, "columns")
        await pressed(pilot, "r")
        assert ("initech", True) == (listed(app)[0], "OLDEST▲" in text(app, "columns"))
        await pressed(pilot, "S", "S", "S")
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


async def test_filter_applies_while_typing():
    """Enter keeps the filter, Esc removes it."""
    async with running() as (app, _, pilot):
        app.query_one(TenantList).post_message(events.Key("slash", "/"))  # typed ahead, in one go
        await pressed(pilot, "i", "n")
        assert ["initech"] == listed(app)
        await pressed(pilot, "enter")
        assert (False, ["initech"]) == (app.query_one(Input).display, listed(app))
        await pressed(pilot, "slash", "x")
        assert ([], "no project matches") == (listed(app), text(app, "rest").split("; ")[0])
        await pressed(pilot, "escape")
        assert ["acme", "mid", "globex", "initech"] == listed(app)
        assert (False, "") == (app.query_one(Input).display, app.choice.project)


async def test_keys_toggle_totals_and_nodes():
    async with running() as (app, _, pilot):
        await pressed(pilot, "t", "n")
        assert (["acme", "globex", "initech"], "") == (listed(app), text(app, "nodes"))
        await pressed(pilot, "t", "n")
        assert (4, True) == (len(listed(app)), bool(text(app, "nodes")))


async def test_pause_needs_confirmation():
    """The result is shown, and a new overview is requested."""
    async with running() as (app, fake, pilot):
        await pressed(pilot, "p")
        assert isinstance(app.screen, ConfirmDialog)
        await pressed(pilot, "n")
        await pressed(pilot, "p", "escape")
        assert ([], False) == (fake.switched, isinstance(app.screen, ConfirmDialog))
        before = fake.looks
        await pressed(pilot, "p", "y")
        await until(lambda: text(app, "message") == "acme: done")
        assert [("acme", "pause")] == fake.switched
        await until(lambda: fake.looks > before)


async def test_paused_topic_is_resumed_and_refusal_is_shown():
    async with running() as (app, fake, pilot):
        await pressed(pilot, "down", "down", "p", "y")
        await until(lambda: fake.switched)
        assert [("globex", "resume")] == fake.switched
        await pressed(pilot, "down", "p", "y")
        await until(lambda: text(app, "message") == "topic initech is draining")


async def test_project_without_topic_cannot_be_paused():
    async with running(shown(Row("acme", ACME.bands))) as (app, fake, pilot):
        await pressed(pilot, "p")
        assert (False, []) == (isinstance(app.screen, ConfirmDialog), fake.switched)
        assert text(app, "message").startswith("acme has no topic")


async def test_pane_shows_why_the_chosen_tenant_waits():
    """Enter opens the pane, arrows change the tenant, Esc closes it."""
    async with running(size=(80, 24)) as (app, fake, pilot):
        await pressed(pilot, "enter")
        await until(lambda: "gone soon" in text(app, "reasons"))
        assert (["acme"], "") == (fake.asked, text(app, "nodes"))
        await pressed(pilot, "down")  # a line of the same tenant
        await pressed(pilot, "down")
        await until(lambda: text(app, "reasons") == "no answer came")
        assert ["acme", "globex"] == fake.asked
        await pressed(pilot, "escape")
        assert (False, True) == (app.query_one("#why").display, bool(text(app, "nodes")))


async def test_frozen_screen_asks_for_no_overview():
    async with running() as (app, fake, pilot):
        await pressed(pilot, "question_mark")
        assert isinstance(app.screen, HelpDialog)
        await pressed(pilot, "escape", "space")
        assert "FROZEN" in text(app, "head")
        fake.document = shown(IDLE)
        app.wake.set()
        await until(lambda: not app.wake.is_set())
        await pilot.pause()
        assert (0, 4) == (fake.looks, len(listed(app)))
        await pressed(pilot, "space")  # at once
        await until(lambda: listed(app) == ["initech"])


async def test_cursor_stays_on_its_tenant():
    """It moves to the first line if the tenant is gone."""
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


async def test_lost_connection_is_shown_until_it_is_back():
    async with running() as (app, fake, _):
        fake.fails = Unreachable("there is no connection to NATS at the moment")
        await look(app, fake)
        await until(lambda: text(app, "message").startswith("connection lost, these figures are old"))
        assert 4 == len(listed(app))
        fake.fails = None
        await look(app, fake, shown(IDLE))
        await until(lambda: listed(app) == ["initech"])
        assert "" == text(app, "message")


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (200, 60)])
async def test_resized_screen_has_room_for_the_list(size):
    async with running(size=(120, 30)) as (app, _, pilot):
        await pilot.resize_terminal(*size)
        await pilot.pause()
        assert app.query_one(TenantList).size.height >= 2
        if size[0] >= 80:
            assert max(map(len, text(app, "columns").splitlines())) < size[0]


async def test_chosen_line_is_visible_without_colours():
    async with running() as (app, _, pilot):
        await pressed(pilot, "down")
        listing = app.query_one(TenantList)
        reversed_ = [any(part.style and part.style.reverse for part in listing.render_line(y)) for y in range(3)]
        assert [False, True, False] == reversed_
        assert isinstance(listing, OptionList)


async def test_unexpected_error_ends_the_app_without_traceback():
    """The caller of the app gets the error, after the terminal is restored."""
    fake = FakeSource(EXAMPLE)
    app = TopApp(fake, ViewState(), 0.01, EXAMPLE)
    fake.fails = RuntimeError("broken")
    with pytest.raises(WorkerFailed):  # raised by Textual's test harness
        await _until_it_ends(app)
    assert fake.fails is app.defect
    assert [] == app._exit_renderables


async def _until_it_ends(app):
    async with app.run_test():
        await until(lambda: not app.is_running)
