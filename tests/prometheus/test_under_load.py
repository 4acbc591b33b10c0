"""Dashboards, rules and alerts in a real Prometheus, with real nodes under a hot tenant's load."""

import asyncio

import pytest

from tests.prometheus import expressions, load
from tests.prometheus.expect import by, exactly
from tests.prometheus.expected.alerting import firing
from tests.prometheus.load import Load
from tests.prometheus.pages import wrong_pages
from tests.prometheus.proof import Proof, variables
from tests.prometheus.seen import WINDOW_S
from tests.prometheus.stage import stage
from tests.support.until import until

# On a busy machine it waits until the load keeps its pace.
pytestmark = [pytest.mark.real, pytest.mark.alone]

_RUNS_S = WINDOW_S + 5  # after that, rates are those of the load alone
_TIMEOUT_S, _APART_S = 75.0, 1.0  # it ends before the backlogs are empty
_SETTLED_S = 4
_POLL_S = 0.25


async def test_panels_rules_and_alerts_show_the_load(tmp_path):
    """Every panel, variable, annotation, recording rule and alert; metrics pages are valid, and the number of labels is
    bounded for any number of projects.
    """
    async with stage(tmp_path) as on, Load(on.world) as going:
        await until(lambda: _all_have_a_label(on), 30, "all tenants to have a label")
        await until(lambda: _steady(on, _SETTLED_S), 30, "partitions to stay where they are")
        await going.crowd()  # a later owner wouldn't know them, as they have no backlog
        await until(lambda: _runs(on), 60, "rates of the load alone")
        wrongs = await _wrongs_at_once(on, going)
        if wrongs:
            pytest.fail("\n\n".join([f"{len(wrongs)} wrong:", *wrongs]), pytrace=False)


async def _all_have_a_label(on) -> bool:
    missing = {*load.TENANTS} - await on.api.label_values("project", "evenlane_quota_rate")
    await asyncio.sleep(_POLL_S * bool(missing))
    return not missing


async def _runs(on) -> bool:
    """Whether all rates are of a time with the load alone."""
    crowd = await on.api.value(f'sum(increase(evenlane_outcomes_total{{project="other"}}[{WINDOW_S}s]))')
    return crowd == 0 and await _steady(on, _RUNS_S)


async def _steady(on, seconds: int) -> bool:
    """Whether no partition has moved, and both nodes were scraped, for `seconds`."""
    read = await on.api.value(f"min(count_over_time(evenlane_plan_generation[{seconds}s]))")
    moved = await on.api.value(f"sum(changes(evenlane_plan_generation[{seconds}s]))")
    if read is not None and read >= seconds - 1 and not moved:
        return True
    await asyncio.sleep(_POLL_S)
    return False


async def _wrongs_at_once(on, going) -> list[str]:
    """Repeat the comparison until it holds: a pause of the machine distorts the rates for a while."""
    clock = asyncio.get_running_loop().time
    end = clock() + _TIMEOUT_S
    while (wrongs := await _wrongs(on, going)) and clock() < end:
        await until(lambda: going.keeps_pace(_RUNS_S), 60, "the load to keep its pace")
        await asyncio.sleep(_APART_S)
    return wrongs


async def _wrongs(on, going) -> list[str]:
    seen = await on.seen(going)
    proof, fire = Proof(on.api, seen), firing(seen)
    await proof.panels()
    await proof.rules()
    await proof.elsewhere()
    return [
        *proof.wrongs,
        *await _wrong_variables(on),
        *await _wrong_annotations(on, fire),
        *await _wrong_alerts(on, fire),
        *await _wrong_targets(on),
        *await _wrong_labels(on, seen),
        *await wrong_pages(on.bases),
    ]


async def _wrong_variables(on) -> list[str]:
    """Each variable has all values of its label, and no other."""
    due = {
        "env": {"online"},
        "subscription": {"()"},
        "priority": {"high", "mid", "low"},
        "instance": {base.removeprefix("http://") for base in on.bases.values()},
    }
    wrongs = []
    for each in expressions.variables():
        expr = expressions.filled_in(each.expr, variables("fleet"))
        if each.computed:
            came = {series.labels[each.label] for series in await on.api.query(expr)}
        else:
            came = await on.api.label_values(each.label, expr)
        if each.label == "project":
            right = {*load.TENANTS, "other"} <= came <= {*load.TENANTS, *load.CROWDED, "other"}
        else:
            right = came == due[each.label]
        if not right:
            wrongs.append(f"{each.place}: {sorted(came)} came")
    return wrongs


async def _wrong_annotations(on, fire) -> list[str]:
    """There is no rebalance and no start of a node; each firing alert is annotated."""
    wrongs = []
    for each in expressions.annotations():
        came = await on.api.query(each.asked(variables("fleet")))
        due = len(fire) if each.place.endswith("/ Alert") else 0
        if len(came) != due:
            wrongs.append(f"{each.place}: {due} were due, and there came: {'; '.join(map(str, came))}")
    return wrongs


async def _wrong_alerts(on, fire) -> list[str]:
    """Prometheus evaluates the rules without an error, and texts of alerts are complete."""
    wrongs = []
    for group in (await on.api.get("rules"))["groups"]:
        wrongs += [f"rule {rule['name']}: {rule}" for rule in group["rules"] if rule["health"] != "ok"]
    found = [each for each in (await on.api.get("alerts"))["alerts"] if each["state"] == "firing"]
    texts = [text for each in found for text in each["annotations"].values()]
    wrongs += [f"an alert says {text!r}" for text in texts if "<no value>" in text or "error" in text or "%!" in text]
    named = sorted((each["labels"]["alertname"], each["labels"].get("project", "")) for each in found)
    due = sorted((each["alertname"], each.get("project", "")) for each in fire)
    return wrongs if named == due else [*wrongs, f"alerts: {due} were due, {named} fire"]


async def _wrong_targets(on) -> list[str]:
    """Both nodes are scraped each second without an error."""
    targets = (await on.api.get("targets"))["activeTargets"]
    wrongs = [
        f"target {each['scrapeUrl']}: {each['lastError'] or each['health']}"
        for each in targets
        if each["health"] != "up"
    ]
    missed = await on.api.query(f"sum_over_time(up[{_RUNS_S}s]) < count_over_time(up[{_RUNS_S}s])")
    return wrongs + [f"target {each}: it was not always read" for each in missed]


async def _wrong_labels(on, seen) -> list[str]:
    """The number of labels is the limit, and the node reports the number of other projects."""
    labels = by("instance", {node.address: exactly(load.LABELS + 1) for node in seen.nodes})
    came = await on.api.query('count by (instance) (count by (instance, project) ({project!="",instance!=""}))')
    all_published = await on.api.query(f"evenlane_projects - {load.LABELS} != evenlane_projects_left_out")
    wrongs = [wrong for wrong in (labels.wrong(came),) if wrong]
    return [
        *(f"labels: {wrong}" for wrong in wrongs),
        *(f"left out, of {load.LABELS}: {each}" for each in all_published),
    ]
