"""Panels of the dashboards: titles, descriptions, units, places, links."""

import re
from itertools import combinations

import pytest

from tests.dashboards.files import LENGTHS, dashboards, panels, queries, variables

ALL = sorted(dashboards())
UNITS = {"short", "s", "mps", "percentunit", "bytes", "bool_yes_no", "bool_on_off"}


COLUMN_PX = 50  # on a screen of 1,280 px, which the menu beside the dashboard narrows
FRAME_PX = 40  # the padding of a panel, the sign of its description and its menu
LETTER_PX = 7.5  # of the title, on average


def _fits(title, columns):
    return len(title) * LETTER_PX <= columns * COLUMN_PX - FRAME_PX


@pytest.fixture(params=ALL)
def dashboard(request):
    return dashboards()[request.param]


def test_dashboards_are_four():
    assert ["delivery", "fairness", "fleet", "tenant"] == ALL
    found = {(each["uid"], each["title"]) for each in dashboards().values()}
    expected = {(f"evenlane-{name}", f"Evenlane / {name.capitalize()}") for name in ALL}
    assert expected == found


def test_panels_have_unique_ids_titles_and_descriptions(dashboard):
    everything = dashboard["panels"]
    assert len(everything) == len({panel["id"] for panel in everything})
    assert len(everything) == len({panel["title"] for panel in everything})
    for panel in panels(dashboard):
        text = panel["description"]
        assert text[:1].isupper() or text.startswith("crash:"), panel["title"]
        assert re.fullmatch(r".{30,240}\.", text), (panel["title"], text)
    sentences = [panel["description"] for panel in panels(dashboard)]
    assert len(sentences) == len(set(sentences))


def test_titles_fit_on_a_small_screen(dashboard):
    """E7: Grafana cuts longer titles."""
    assert [] == [panel["title"] for panel in panels(dashboard) if not _fits(panel["title"], panel["gridPos"]["w"])]


@pytest.mark.parametrize(("title", "columns", "fits"), [("Handled", 3, True), ("Partitions nobody owns", 3, False)])
def test_long_titles_of_small_panels_are_found(title, columns, fits):
    """E7: the test above can fail."""
    assert fits == _fits(title, columns)


def test_panels_are_in_the_grid_without_overlap(dashboard):
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24, panel["title"]
        assert place["w"] >= 3 or panel["type"] == "row", panel["title"]
    for one, other in combinations(dashboard["panels"], 2):
        assert not _overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def test_dashboard_begins_with_a_row_of_figures(dashboard):
    first = [panel for panel in panels(dashboard) if panel["gridPos"]["y"] == 0]
    assert {"stat"} == {panel["type"] for panel in first}
    assert len(first) >= 7


def test_panels_have_units_and_stats_have_colours(dashboard):
    for panel in panels(dashboard):
        if panel["type"] == "heatmap":
            assert "s" == panel["options"]["yAxis"]["unit"]
            continue
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "table":
            units = _units_of_columns(panel)
            assert len(panel["targets"]) == len(units), panel["title"]
        else:
            units = [defaults["unit"]]
        assert set(units) <= UNITS, panel["title"]
        if panel["type"] == "stat":
            assert defaults["thresholds"]["steps"][0]["value"] is None, panel["title"]


def test_columns_of_tables_match_their_queries(dashboard):
    """Grafana calls the values of a query `Value #A`, or `Value` if there is only one query."""
    for panel in panels(dashboard):
        if panel["type"] != "table":
            continue
        named = next(each["options"]["renameByName"] for each in panel["transformations"] if each["id"] == "organize")
        refs = [target["refId"] for target in panel["targets"]]
        values = [f"Value #{ref}" for ref in refs] if len(refs) > 1 else ["Value"]
        assert [name for name in named if name.startswith("Value")] == values, panel["title"]
        assert panel["options"]["sortBy"][0]["displayName"] in named.values(), panel["title"]
        for target in panel["targets"]:
            assert (target["format"], target["instant"]) == ("table", True), panel["title"]


def test_expressions_use_each_variable_and_no_other(dashboard):
    offered = variables(dashboard)
    asked = " ".join(
        [query.expr for query in queries(dashboard)]
        + [
            f"{each.get('query', '')} ${{{each['datasource']['uid'][2:-1]}}}"
            for each in offered.values()
            if "datasource" in each
        ]
    )
    used = {first or second for first, second in re.findall(r"\$(?:\{(\w+)\}|(\w+))", LENGTHS.sub("", asked))}
    assert set(offered) == used


def test_panels_use_the_chosen_data_source(dashboard):
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels(dashboard):
        assert chosen == panel["datasource"]
        assert all(chosen == target["datasource"] for target in panel["targets"])
    assert all(chosen == each["datasource"] for each in dashboard["annotations"]["list"])


def test_variables_select_one_environment_and_any_nodes(dashboard):
    offered = variables(dashboard)
    assert ["datasource", "env", "subscription"] == list(offered)[:3]
    assert {"priority", "instance"} <= set(offered)
    for name in ("priority", "instance"):
        assert offered[name]["multi"]
        assert offered[name]["includeAll"]
    for name in ("env", "subscription"):
        assert not offered[name]["multi"]
        assert not offered[name]["includeAll"]
    if dashboard["uid"] == "evenlane-tenant":
        assert not offered["project"]["multi"]
        assert not offered["project"]["includeAll"]


def test_dashboards_link_to_each_other(dashboard):
    others = {f"evenlane-{name}" for name in ALL} - {dashboard["uid"]}
    assert others == {re.match(r"/d/([\w-]+)/", link["url"])[1] for link in dashboard["links"]}
    for link in dashboard["links"]:
        assert link["keepTime"]
        assert "${env:queryparam}&${subscription:queryparam}" in link["url"]
        assert "${datasource:queryparam}" in link["url"]


@pytest.mark.parametrize("name", ["fleet", "fairness", "delivery"])
def test_projects_link_to_their_dashboard(name):
    """In tables by name, in graphs by label."""
    found = 0
    for panel in panels(dashboards()[name]):
        fields = panel.get("fieldConfig", {})
        properties = [one for each in fields.get("overrides", []) for one in each["properties"] if one["id"] == "links"]
        links = [*fields.get("defaults", {}).get("links", []), *(link for each in properties for link in each["value"])]
        of_projects = any("{{project}}" == target["legendFormat"] for target in panel.get("targets", []))
        if of_projects or "project" in _renamed(panel):
            assert links, panel["title"]
        for link in links:
            assert link["url"].startswith("/d/evenlane-tenant/")
            assert re.search(r"&var-project=\$\{__(value\.text|field\.labels\.project)\}$", link["url"])
            found += 1
    assert found >= 2


def test_rebalances_restarts_and_alerts_are_annotated(dashboard):
    assert ["Rebalance", "Node began", "Alert"] == [each["name"] for each in dashboard["annotations"]["list"]]


def _overlap(one, other):
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


def _units_of_columns(panel):
    overrides = panel["fieldConfig"]["overrides"]
    return [one["value"] for each in overrides for one in each["properties"] if one["id"] == "unit"]


def _renamed(panel):
    return {name for each in panel.get("transformations", []) for name in each["options"].get("renameByName", {})}
