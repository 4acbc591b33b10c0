"""Frame shared by the four dashboards: variables, links to each other, annotations, layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    GridPos,
    RowPanel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from evenlane.dashboards.panels import SOURCE
from evenlane.dashboards.queries import PROCESS_BEGAN, of_env
from evenlane.engine.telemetry import metric_names

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import AnnotationQuery, Dashboard, DashboardLink, Panel, VariableModel

_WIDTH = 24
_OTHERS = (
    ("Fleet", "evenlane-fleet"),
    ("Tenant", "evenlane-tenant"),
    ("Fairness", "evenlane-fairness"),
    ("Delivery", "evenlane-delivery"),
)


class PanelRow(NamedTuple):
    """Panels in a row. `widths` are those of the first panels; the others share the remaining width."""

    height: int
    panels: tuple[Panel, ...]
    widths: tuple[int, ...] = ()


class Section(NamedTuple):
    """Shelves under a heading; the first part of a dashboard has none."""

    title: str
    shelves: tuple[PanelRow, ...]


def shelf(height: int, *panels: Panel, widths: tuple[int, ...] = ()) -> PanelRow:
    return PanelRow(height, panels, widths)


def build_dashboard(
    title: str, description: str, parts: tuple[Section, ...], *, one_project: bool = False, projects: bool = True
) -> Dashboard:
    """Build a dashboard for one project, for the selected ones, or for all."""
    uid = f"evenlane-{title.lower()}"
    built = (
        builders.Dashboard(f"Evenlane / {title}")
        .uid(uid)
        .description(description)
        .tags(["evenlane"])
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("10s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .timepicker(builders.TimePicker().refresh_intervals(["5s", "10s", "30s", "1m", "5m", "15m"]))
        .build()
    )
    built.templating.list_val = _variables(one_project=one_project, projects=projects or one_project)
    built.annotations.list_val = _marks()
    built.links = [_link(*other) for other in _OTHERS if other[1] != uid]
    built.panels = _place(parts)
    return built


# ---- variables


def _variables(*, one_project: bool, projects: bool) -> list[VariableModel]:
    source = builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus").build()
    env = _values("env", "Environment", f"label_values({metric_names.SLOTS}, env)")
    node = _allow_several(_values("instance", "Node", f"label_values({of_env(metric_names.SLOTS)}, instance)"))
    project = _values("project", "Project", f"label_values({of_env(metric_names.BACKLOG)}, project)")
    priority = _allow_several(
        _values("priority", "Priority", f"label_values({of_env(metric_names.BACKLOG)}, priority)")
    )
    found = [source, env.build(), _subscription().build()]
    if projects:
        found.append((project if one_project else _allow_several(project)).build())
    return [*found, priority.build(), node.build()]


def _values(name: str, label: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .definition(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.NATURAL_ASC)
    )


def _subscription() -> builders.QueryVariable:
    """Choose one subscription. The unnamed one has no label, and Grafana offers no empty value: its value is `()`, a
    regular expression that only the empty text matches.
    """
    found = f'count by (subscription) ({metric_names.SLOTS}{{env="$env"}})'
    named = f'label_replace({found}, "text", "(unnamed)", "subscription", "")'
    offered = f'label_replace({named}, "subscription", "()", "subscription", "")'
    shown = r'/subscription="(?<value>[^"]+)"(,text="(?<text>[^"]+)")?/'
    return _values("subscription", "Subscription", f"query_result({offered})").regex(shown)


def _allow_several(variable: builders.QueryVariable) -> builders.QueryVariable:
    """Allow several values; initially all."""
    everything = VariableOption(selected=True, text="All", value="$__all")
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


# ---- links and marks


def _link(title: str, uid: str) -> DashboardLink:
    return (
        builders.DashboardLink(title)
        .type(DashboardLinkType.LINK)
        .icon("dashboard")
        .url(f"/d/{uid}/{uid}?${{datasource:queryparam}}&${{env:queryparam}}&${{subscription:queryparam}}")
        .keep_time(True)
        .build()
    )


def _marks() -> list[AnnotationQuery]:
    moved = f"max(changes({of_env(metric_names.GENERATION)}[1m])) > 0"
    began = f"changes({PROCESS_BEGAN}[1m]) > 0 and on (job, instance) {of_env(metric_names.SLOTS)}"
    firing = 'ALERTS{alertname=~"Evenlane.+",alertstate="firing",env=~"$env|"}'
    return [
        _mark("Rebalance", moved, "blue", "partitions were reassigned"),
        _mark("Node began", began, "green", "{{instance}}"),
        _mark("Alert", firing, "red", "{{severity}} {{subscription}} {{project}} {{instance}}", title="{{alertname}}"),
    ]


def _mark(name: str, expr: str, colour: str, text: str, title: str = "") -> AnnotationQuery:
    return (
        builders.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .expr(expr)
        .step("1m")
        .enable(True)
        .icon_color(colour)
        .title_format(title or name)
        .text_format(text)
        .build()
    )


# ---- places


def _place(parts: tuple[Section, ...]) -> list[Panel | RowPanel]:
    """Lay the panels out from the top, numbered from 1."""
    placed: list[Panel | RowPanel] = []
    y = 0
    for part in parts:
        if part.title:
            row = RowPanel(title=part.title, grid_pos=GridPos(h=1, w=_WIDTH, x=0, y=y), id_val=len(placed) + 1)
            placed.append(row)
            y += 1
        for each in part.shelves:
            for panel, (x, width) in zip(each.panels, _columns(each), strict=True):
                panel.id_val, panel.grid_pos = len(placed) + 1, GridPos(h=each.height, w=width, x=x, y=y)
                placed.append(panel)
            y += each.height
    return placed


def _columns(each: PanelRow) -> list[tuple[int, int]]:
    """Return each panel's start and width."""
    left = len(each.panels) - len(each.widths)
    widths = [*each.widths, *[(_WIDTH - sum(each.widths)) // left] * left]
    widths[-1] += _WIDTH - sum(widths)
    return [(sum(widths[:place]), width) for place, width in enumerate(widths)]
