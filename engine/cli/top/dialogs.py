"""Dialogs of `evenlane top`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

_ABOUT = {
    "pause": "Stop handling messages of {project}? New messages are accepted and wait until it is resumed.",
    "resume": "Handle messages of {project} again?",
}

HELP = """\
up, down   choose a line                 Enter  why that project waits
s, S       sort by the next column, or   r      reverse the order
           the one before; or click it   t      one line for each project
/          filter by name; Enter keeps   n      nodes, or not
           it, Esc ends it               space  freeze, or go on
p          pause its topic, or resume    q      quit
           it, after a question          Esc    close the panel

IN/S, OUT/S  messages per second that come in and leave, over up to 30 s
GONE IN      when its backlog is gone at this rate
QUOTA        of its topic; 30/100 is 30 at this moment of 100
?  not known at this moment      -  none      *  the leader of the nodes
The documentation explains more: "evenlane top" and "Why is this waiting?"."""


class ConfirmDialog(ModalScreen[bool]):
    """Asks whether to `pause` or `resume` a project's topic."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, project: str, verb: str) -> None:
        super().__init__()
        self._text = f"{_ABOUT[verb].format(project=project)}\n\ny {verb}    n leave it as it is"

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._text, markup=False)

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class HelpDialog(ModalScreen[None]):
    """Shows the keys until one is pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,space,question_mark", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(HELP, markup=False)
