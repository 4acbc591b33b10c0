"""Colours and thresholds, so that equal things look the same in every panel."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import FieldColor
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig as Thresholds
from grafana_foundation_sdk.models.dashboard import (
    DashboardFieldConfigSourceOverrides,
    DashboardRangeMapOptions,
    DynamicConfigValue,
    FieldColorModeId,
    MatcherConfig,
    RangeMap,
    Threshold,
    ThresholdsMode,
    ValueMappingResult,
)

GOOD, WATCH, BAD, CALM = "green", "yellow", "red", "blue"

FOR_EVER_S = 31_536_000
"""Durations beyond a year are shown as never: Grafana can't show infinity."""

_PRIORITIES = {"high": "purple", "mid": "blue", "low": "super-light-blue"}
"""Default priorities; others get one of Grafana's colours by name."""

_OUTCOMES = {"handled": "green", "retried": "yellow", "expired": "orange", "dead": "red", "dropped": "text"}

Steps = tuple[tuple[float, str], ...]
"""Colours by lower bound; values below the first bound have the base colour."""


def thresholds(steps: Steps, base: str = GOOD) -> Thresholds:
    first = Threshold(value=None, color=base)
    rest = [Threshold(value=value, color=colour) for value, colour in steps]
    return Thresholds().mode(ThresholdsMode.ABSOLUTE).steps([first, *rest])


def by_threshold() -> FieldColor:
    return FieldColor().mode(FieldColorModeId.THRESHOLDS)


def by_name() -> FieldColor:
    """Give a series the same colour in each panel."""
    return FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC_BY_NAME)


def overrides(legend: str) -> list[DashboardFieldConfigSourceOverrides]:
    """Return the colours with a meaning, for the series that `legend` may name."""
    if "{{priority}}" in legend:
        colours = _PRIORITIES
    elif "{{outcome}}" in legend:
        colours = _OUTCOMES
    else:
        colours = {name: colour for name, colour in (_OUTCOMES | {"quota": "red"}).items() if name == legend}
    before = legend.partition("{{")[0]
    return [
        DashboardFieldConfigSourceOverrides(
            matcher=MatcherConfig(id_val="byRegexp", options=f"/^{before}{name}\\b/"),
            properties=[DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})],
        )
        for name, colour in colours.items()
    ]


def dash_line() -> list[DynamicConfigValue]:
    return [
        DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 8]}),
        DynamicConfigValue("custom.fillOpacity", 0),
    ]


def never() -> RangeMap:
    return RangeMap(
        options=DashboardRangeMapOptions(
            from_val=FOR_EVER_S, to=None, result=ValueMappingResult(text="never", color=BAD, index=0)
        )
    )
