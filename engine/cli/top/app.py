"""Terminal app of `evenlane top`."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.widgets import Footer, Input, OptionList, Static
from textual.worker import WorkerFailed

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.top import view_state as chosen
from evenlane.engine.cli.top.dialogs import ConfirmDialog, HelpDialog
from evenlane.engine.cli.top.list_widget import TenantList
from evenlane.engine.cli.top.style import CSS
from evenlane.engine.cli.top.table import NO_MATCH, NODES, TENANTS, rest, summary, table, widths
from evenlane.engine.cli.top.view_state import SORTS
from evenlane.engine.cli.top.why_pane import why_lines
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from evenlane.engine.cli.top.source import OverviewSource
    from evenlane.engine.cli.top.view_state import ViewState

_BY_COLUMN = [column.sort for column in TENANTS if column.sort is not None]
_NODES_SHOWN = 6
_WIDE, _HIGH = 100, 16  # size of a terminal that has room for everything
_NOTICE_S = 8.0
_QUIET_S = 0.3  # delay, so that moving along the lines asks no node
_DOWN, _UP = "▼", "▲"
_IDLE = "nothing waits or moves"


class TopApp(App[None]):
    """The app. `document` is the first overview. `defect` is the error that ended it, if it wasn't quit. Setting `wake`
    ends the wait for the next overview.

    Invariant: `_asked_why` is the project shown in the pane, empty while it is closed.
    """

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit", priority=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("slash", "filter", "Filter", key_display="/", priority=True),  # before later text is typed
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort back", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("p", "pause", "Pause"),
        Binding("space", "freeze", "Freeze", key_display="␣"),
        Binding("t", "totals", "Totals"),
        Binding("n", "nodes", "Nodes"),
        Binding("escape", "close", "Back", show=False),
    ]

    def __init__(self, source: OverviewSource, choice: ViewState, interval_s: float, document: dict[str, Any]) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.defect: Exception | None = None
        self._source, self._interval_s = source, interval_s
        self.choice, self._document = choice, document
        self._widths: dict[str, int] = {}
        self._room = Size(80, 24)
        self._columns: list[tuple[int, Any]] = []
        self._frozen, self._lost, self._notice = False, "", ""
        self._with_nodes, self._asked_why = True, ""
        self.wake = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Static(id="message", markup=False)
        yield Static(id="columns", markup=False)
        yield TenantList()
        yield Static(id="rest", markup=False)
        with VerticalScroll(id="why", can_focus=True):
            yield Static(id="reasons", markup=False)
        yield Static(id="nodes", markup=False)
        yield Input(id="filter", placeholder="part of a project's name", compact=True, select_on_focus=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one("#filter", Input).value = self.choice.project
        self.query_one(TenantList).focus()
        self._show()
        self.run_worker(self._follow(), name="follow")

    def on_resize(self, event: events.Resize) -> None:
        self._room = event.size
        self._widths = {}
        self._show()

    def _handle_exception(self, error: Exception) -> None:
        """Keep the error for the caller instead of drawing a traceback."""
        cause = error.error if isinstance(error, WorkerFailed) and isinstance(error.error, Exception) else error
        self.defect = self.defect or cause
        self._exception = self._exception or error
        self._exception_event.set()
        self._return_code = 1
        self._close_messages_no_wait()

    # ---- data

    async def _follow(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self.wake.wait()
            except TimeoutError:
                pass
            self.wake.clear()
            if not self._frozen:
                await self._look()

    async def _look(self) -> None:
        try:
            self._document = await self._source.overview()
            self._lost = ""
        except EvenlaneError as error:
            self._lost = f"connection lost, these figures are old; reconnecting: {error}"
        self._show()
        if self._asked_why and not self._lost:
            await self._show_why()

    async def _show_why(self, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        project = self._asked_why
        try:
            answer = await self._source.why(project)
            text = "\n".join(why_lines(answer))
        except EvenlaneError as error:
            text = str(error)
        if self._asked_why == project:  # the user may have chosen another tenant meanwhile
            self.query_one("#reasons", Static).update(text)

    # ---- screen

    def _show(self) -> None:
        if not self.query("#filter"):
            return
        document, (width, height) = self._document, self._room
        at = datetime.fromisoformat(document["at"]).astimezone().strftime("%H:%M:%S")
        frozen = "  FROZEN" if self._frozen else ""
        self._put("head", f"{document['env']} {at}{frozen}  {summary(document, nodes=width >= _WIDE)}")
        notes = document["notes"]
        more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
        self._put("message", self._lost or self._notice or (f"{notes[0]}{more}" if notes else ""))
        self.query_one("#message").set_class(bool(self._lost), "lost")
        self._show_tenants(width)
        nodes = table(NODES, document["nodes"][:_NODES_SHOWN], width)
        hidden = len(document["nodes"]) - _NODES_SHOWN
        below = [f"and {format_count(hidden, 'node')} more"] if hidden > 0 else []
        shown = self._with_nodes and not self._asked_why and document["nodes"] and height >= _HIGH
        self._put("nodes", "\n".join([nodes.header, *nodes.lines, *below]) if shown else "")

    def _show_tenants(self, width: int) -> None:
        lines = chosen.lines(self._document, self.choice)
        natural = self.choice.reverse == (self.choice.sort == "name")
        made = table(
            TENANTS, lines, width - 1, sort=self.choice.sort, mark=_DOWN if natural else _UP, least=self._widths
        )
        self._widths, self._columns = widths(made), made.columns
        self._put("columns", made.header)
        self.query_one(TenantList).show(lines, made.lines)
        matching = len(chosen.tenants(self._document, self.choice._replace(limit=None)))
        more = rest(self._document, lines, matching)
        nothing = "" if lines else NO_MATCH if self.choice.project else _IDLE
        self._put("rest", "; ".join(filter(None, (nothing, more))))

    def _put(self, name: str, text: str) -> None:
        """Update a part of the screen; an empty part takes no room."""
        part = self.query_one(f"#{name}", Static)
        part.update(text)
        part.display = bool(text)

    # ---- keys

    def action_help(self) -> None:
        self.push_screen(HelpDialog())

    def action_sort(self, step: int) -> None:
        sorts = _BY_COLUMN
        at = sorts.index(self.choice.sort) if self.choice.sort in sorts else 0
        self._choose(sort=sorts[(at + step) % len(sorts)], reverse=False)

    def action_reverse(self) -> None:
        self._choose(reverse=not self.choice.reverse)

    def action_totals(self) -> None:
        self._choose(totals=not self.choice.totals)

    def action_nodes(self) -> None:
        self._with_nodes = not self._with_nodes
        self._show()

    def action_freeze(self) -> None:
        self._frozen = not self._frozen
        self._show()
        self.wake.set()

    def action_filter(self) -> None:
        asked = self.query_one("#filter", Input)
        asked.display = True
        self.screen.set_focus(asked)  # at once, so that text typed after it isn't taken for commands

    def action_close(self) -> None:
        """Close the last opened part: the filter's line, then a tenant's pane, then the filter itself."""
        asked = self.query_one("#filter", Input)
        if asked.display:
            asked.display = False
            self.query_one(TenantList).focus()
        elif self._asked_why:
            self._asked_why = ""
            self.query_one("#why").display = False
            self.query_one(TenantList).focus()
            self._show()
            return
        asked.value = ""

    def action_why(self) -> None:
        tenant = self.query_one(TenantList).tenant
        if tenant is None or tenant["project"] == self._asked_why:
            return
        first = not self._asked_why
        self._asked_why = tenant["project"]
        self.query_one("#reasons", Static).update(f"{tenant['project']}: asking the nodes ...")
        self.query_one("#why").display = True
        self._show()
        self.run_worker(self._show_why(0 if first else _QUIET_S), name="why", exclusive=True, group="why")

    def action_pause(self) -> None:
        tenant = self.query_one(TenantList).tenant
        if tenant is None:
            return
        if tenant["state"] is None:
            self._show_notice(f"{tenant['project']} has no topic: its messages aren't handled until it has one")
            return
        verb = "resume" if tenant["state"] == "paused" else "pause"
        self.run_worker(self._pause(tenant["project"], verb), name=verb)

    async def _pause(self, project: str, verb: str) -> None:
        if not await self.push_screen_wait(ConfirmDialog(project, verb)):
            return
        self._show_notice(f"{project}: {verb} ...")
        try:
            self._show_notice(await self._source.switch(project, verb))
        except EvenlaneError as error:
            self._show_notice(str(error))
        self.wake.set()

    def _show_notice(self, text: str) -> None:
        """Show a message for a while."""
        self._notice = text
        self._show()
        self.set_timer(_NOTICE_S, lambda: self._clear_notice(text))

    def _clear_notice(self, text: str) -> None:
        if self._notice == text:
            self._notice = ""
            self._show()

    def _choose(self, **changes: Any) -> None:
        self.choice = self.choice._replace(**changes)
        self._widths, self._notice = {}, ""
        self._show()

    # ---- input and clicks

    def on_input_changed(self, event: Input.Changed) -> None:
        self._choose(project=event.value)

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        self.query_one("#filter").display = False
        self.query_one(TenantList).focus()

    def on_option_list_option_selected(self, _event: OptionList.OptionSelected) -> None:
        self.action_why()

    def on_option_list_option_highlighted(self, _event: OptionList.OptionHighlighted) -> None:
        """Keep the open pane on the chosen tenant."""
        if self._asked_why:
            self.action_why()

    def on_click(self, event: events.Click) -> None:
        """Sort by the clicked column, or reverse the order."""
        if event.widget is None or event.widget.id != "columns":
            return
        under = [column.sort for start, column in self._columns if start <= event.x]
        if under and under[-1] in SORTS:
            same = under[-1] == self.choice.sort
            self._choose(sort=under[-1], reverse=same and not self.choice.reverse)
