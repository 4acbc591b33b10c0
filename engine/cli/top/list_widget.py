"""List of tenants, from which a line is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rich.style import Style
from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType
    from textual.strip import Strip

    from evenlane.engine.cli.top.view_state import TenantLine

_COLOURS = {"critical": "ansi_red", "warning": "ansi_yellow"}
_CHOSEN = Style(reverse=True)


class TenantList(OptionList):
    """The list. `tenant` is the one whose line is chosen. It stays chosen when other lines are shown."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Why", key_display="⏎")]

    def __init__(self) -> None:
        super().__init__(id="tenants", markup=False, compact=True)
        self._shown_lines: Sequence[TenantLine] = []

    def show(self, lines: Sequence[TenantLine], texts: Sequence[str]) -> None:
        marked, top = self._find_marked(), self.scroll_y
        self._shown_lines = lines
        names = [_name(line) for line in lines]
        options = [
            Option(style_line(text, line), id=name) for text, line, name in zip(texts, lines, names, strict=True)
        ]
        with self.app.batch_update():
            self.set_options(options)
            if names:
                self.highlighted = names.index(marked) if marked in names else 0
            self.scroll_to(y=top, animate=False)

    def render_line(self, y: int) -> Strip:
        """Reverse the chosen line instead of colouring it, which is visible with any palette."""
        strip = super().render_line(y)
        return strip.apply_style(_CHOSEN) if self.scroll_offset.y + y == self.highlighted else strip

    @property
    def tenant(self) -> dict[str, Any] | None:
        at = self.highlighted
        return self._shown_lines[at].tenant if at is not None and at < len(self._shown_lines) else None

    def _find_marked(self) -> str | None:
        at = self.highlighted
        return _name(self._shown_lines[at]) if at is not None and at < len(self._shown_lines) else None


def style_line(text: str, line: TenantLine) -> Content:
    """Style a line: dim without activity; red or yellow, by its severity, if somebody should look."""
    figures = line.figures
    if colour := _COLOURS.get(line.tenant["status"]["severity"]):
        return Content.styled(text, colour)
    idle = not (figures["backlog"] or figures["in_flight"] or figures["leaving"])
    return Content.styled(text, "dim" if idle else "")


def _name(line: TenantLine) -> str:
    return f"{line.tenant['project']} {line.figures['priority']}"
