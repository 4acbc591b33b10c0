"""Kinds of panels. Each panel has a title, and a plain sentence that says what it shows and what to do about it."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, NamedTuple

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import DashboardLink
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    DataSourceRef,
    GraphDrawStyle,
    GraphGradientMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    StackingMode,
    TableCellDisplayMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from evenlane.dashboards import styles

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Panel

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

_HERE = "${datasource:queryparam}&${env:queryparam}&${subscription:queryparam}&${__url_time_range}"
TENANT = f"/d/evenlane-tenant/evenlane-tenant?{_HERE}&var-project="
"""Address of a project's dashboard, without the project."""


class GraphLine(NamedTuple):
    """A line. `legend` is in Grafana's format: `{{label}}` is a label's value. Reference lines are `dashed`."""

    expr: str
    legend: str
    dashed: bool = False


class TableColumn(NamedTuple):
    """A column of a table: its values and their format."""

    name: str
    expr: str
    unit: str = "short"
    steps: styles.Steps = ()
    decimals: int | None = None


def figure(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = "short",
    steps: styles.Steps = (),
    decimals: int | None = None,
    base: str | None = None,
    never: bool = False,
) -> Panel:
    """Build a panel with one number, and its course in the background unless it covers the whole time range."""
    query, graph = _query(expr, title, "A"), BigValueGraphMode.AREA
    if "$__range" in expr:
        query, graph = query.instant(), BigValueGraphMode.NONE
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .with_target(query)
        .unit(unit)
        .thresholds(styles.thresholds(steps, base or (styles.GOOD if steps else styles.CALM)))
        .color_scheme(styles.by_threshold())
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(graph)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    if decimals is not None:
        panel.decimals(decimals)
    if never:
        panel.mappings([styles.never()])
    return panel.build()


def course(
    title: str,
    description: str,
    *lines: GraphLine,
    unit: str = "short",
    stacked: bool = False,
    steps: styles.Steps = (),
    most: float | None = None,
    projects: bool = False,
    log: bool = False,
) -> Panel:
    """Build a panel with lines over time. With `projects`, a click on a line leads to its project's dashboard."""
    panel = (
        _over_time(title, description, unit, busy=projects)
        .line_width(1)
        .fill_opacity(30 if stacked else 8)
        .gradient_mode(GraphGradientMode.OPACITY)
        .show_points(VisibilityMode.NEVER)
    )
    for ref, line in zip(string.ascii_uppercase, lines, strict=False):
        panel.with_target(_query(line.expr, line.legend, ref))
        for each in styles.overrides(line.legend):
            panel.with_override(each.matcher, each.properties)
        if line.dashed:
            panel.override_by_query(ref, styles.dash_line())
    if stacked:
        panel.stacking(common.StackingConfig().group("A").mode(StackingMode.NORMAL))
    if steps:
        panel.thresholds(styles.thresholds(steps, "transparent"))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
    if most is not None:
        panel.max(most)
    if log:
        panel.scale_distribution(_log())
    if projects:
        panel.data_links([_to_tenant("${__field.labels.project}")])
    return panel.build()


def bars(title: str, description: str, *lines: GraphLine, unit: str = "short") -> Panel:
    """Build a panel with counts per span of time, for rare events."""
    panel = (
        _over_time(title, description, unit, busy=False)
        .decimals(0)
        .draw_style(GraphDrawStyle.BARS)
        .fill_opacity(70)
        .line_width(0)
        .stacking(common.StackingConfig().group("A").mode(StackingMode.NORMAL))
    )
    for ref, line in zip(string.ascii_uppercase, lines, strict=False):
        panel.with_target(_query(line.expr, line.legend, ref).interval("1m"))
        for each in styles.overrides(line.legend):
            panel.with_override(each.matcher, each.properties)
    return panel.build()


def density(title: str, description: str, expr: str) -> Panel:
    """Build a histogram of durations over time. `expr` is by `le`, in seconds."""
    return (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .with_target(_query(expr, "{{le}}", "A").format(PromQueryFormat.HEATMAP))
        .color(
            heatmap.HeatmapColorOptions()
            .mode(HeatmapColorMode.SCHEME)
            .scheme("Blues")
            .steps(64)
            .exponent(0.5)
            .fill("blue")
            .reverse(False)
        )
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .cell_gap(1)
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .build()
    )


def listing(
    title: str, description: str, keys: dict[str, str], *columns: TableColumn, first: str, most_first: bool = True
) -> Panel:
    """Build a table with a row per value of the labels `keys` (label -> heading), ordered by the column `first`. A
    project links to its dashboard.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .show_header(True)
        .filterable(True)
        .thresholds(styles.thresholds((), "text"))
        .sort_by([common.TableSortByFieldState().display_name(first).desc(most_first)])
    )
    order, names = dict.fromkeys(keys, 0), dict(keys)
    for ref, column in zip(string.ascii_uppercase, columns, strict=False):
        query = _query(column.expr, column.name, ref).instant().format(PromQueryFormat.TABLE)
        panel.with_target(query)
        value = f"Value #{ref}" if len(columns) > 1 else "Value"  # Grafana's names
        order[value], names[value] = 0, column.name
        panel.override_by_name(column.name, _cells(column))
    if "project" in keys:
        link = {"title": "Its dashboard", "url": TENANT + "${__value.text}"}
        panel.override_by_name(keys["project"], [DynamicConfigValue("links", [link])])
    panel.with_transformation(DataTransformerConfig("merge", options={}))
    panel.with_transformation(
        DataTransformerConfig(
            "organize",
            options={
                "excludeByName": {"Time": True},
                "indexByName": {name: place for place, name in enumerate(order)},
                "renameByName": names,
            },
        )
    )
    return panel.build()


def _over_time(title: str, description: str, unit: str, *, busy: bool) -> timeseries.Panel:
    return (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .color_scheme(styles.by_name())
        .legend(_legend(busy=busy))
        .tooltip(_tooltip())
    )


def _cells(column: TableColumn) -> list[DynamicConfigValue]:
    properties = [DynamicConfigValue("unit", column.unit)]
    if column.decimals is not None:
        properties.append(DynamicConfigValue("decimals", column.decimals))
    if column.steps:
        properties += [
            DynamicConfigValue("thresholds", styles.thresholds(column.steps, "text").build()),
            DynamicConfigValue("custom.cellOptions", {"type": TableCellDisplayMode.COLOR_TEXT}),
        ]
    return properties


def _query(expr: str, legend: str, ref: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(SOURCE).expr(expr).legend_format(legend).ref_id(ref).range()


def _legend(*, busy: bool) -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True)
    if not busy:
        return legend.display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).calcs([])
    table = legend.display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.RIGHT)
    return table.calcs(["lastNotNull", "max"]).sort_by("Last *").sort_desc(True)


def _tooltip() -> common.VizTooltipOptions:
    return common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)


def _log() -> common.ScaleDistributionConfig:
    return common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10)


def _to_tenant(project: str) -> DashboardLink:
    return DashboardLink("Its dashboard").url(TENANT + project)
