"""What Prometheus makes of real nodes under the hot tenant's load (issue 7: the proof)."""

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

# Beside a busy neighbour it waits until the load keeps its pace.
pytestmark = [pytest.mark.real, pytest.mark.alone, pytest.mark.timeout(300)]

_RUNS_S = WINDOW_S + 5  # until then rates are those of the load alone
_PATIENCE_S, _APART_S = 75.0, 1.0  # patience ends before the backlogs do
_SETTLED_S = 4
_POLL_S = 0.25


async def test_all_that_is_shown_is_what_the_load_must_produce(tmp_path):
    """Every panel, variable, annotation, recording rule and alert, asked of a real Prometheus; the nodes' pages are
    clean; and labels stay bounded, whatever the number of projects.
    """
    async with stage(tmp_path) as on, Load(on.world) as going:
        await until(lambda: _all_have_a_label(on), 30, "all tenants to have a label")
        await until(lambda: _steady(on, _SETTLED_S), 30, "partitions to stay where they are")
        await going.crowd()  # (who owns a partition later knows nothing of them, as nothing of them waits)
        await until(lambda: _runs(on), 60, "the load to run for so long that rates are its own")
        wrongs = await _wrongs_at_once(on, going)
        if wrongs:
            pytest.fail("\n\n".join([f"{len(wrongs)} wrong:", *wrongs]), pytrace=False)


async def _all_have_a_label(on) -> bool:
    missing = {*load.TENANTS} - await on.api.label_values("project", "evenlane_quota_rate")
    await asyncio.sleep(_POLL_S * bool(missing))
    return not missing


async def _runs(on) -> bool:
    """Rates are of a time in which nothing was but the load."""
    crowd = await on.api.value(f'sum(increase(evenlane_outcomes_total{{project="other"}}[{WINDOW_S}s]))')
    return crowd == 0 and await _steady(on, _RUNS_S)


async def _steady(on, seconds: int) -> bool:
    """No partition moves any more, and both nodes were read throughout."""
    read = await on.api.value(f"min(count_over_time(evenlane_plan_generation[{seconds}s]))")
    moved = await on.api.value(f"sum(changes(evenlane_plan_generation[{seconds}s]))")
    if read is not None and read >= seconds - 1 and not moved:
        return True
    await asyncio.sleep(_POLL_S)
    return False


async def _wrongs_at_once(on, going) -> list[str]:
    """Repeat the comparison until it holds: a machine that stood still for a moment distorts the rates for a while."""
    clock = asyncio.get_running_loop().time
    end = clock() + _PATIENCE_S
    while (wrongs := await _wrongs(on, going)) and clock() < end:
        await until(lambda: going.keeps_pace(_RUNS_S), 60, "the load to be what is due again")
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
    """Each asks for values of a label: all there are, and no other."""
    due = {
        "env": {"online"},
        "priority": {"high", "mid", "low"},
        "instance": {base.removeprefix("http://") for base in on.bases.values()},
    }
    wrongs = []
    for each in expressions.variables():
        selector = expressions.filled_in(each.selector, variables("fleet"))
        came = await on.api.label_values(each.label, selector)
        if each.label == "project":
            right = {*load.TENANTS, "other"} <= came <= {*load.TENANTS, *load.CROWDED, "other"}
        else:
            right = came == due[each.label]
        if not right:
            wrongs.append(f"{each.place}: {sorted(came)} came")
    return wrongs


async def _wrong_annotations(on, fire) -> list[str]:
    """Nothing is rebalanced and no node begins; each alert that fires is told."""
    wrongs = []
    for each in expressions.annotations():
        came = await on.api.query(each.asked(variables("fleet")))
        due = len(fire) if each.place.endswith("/ Alert") else 0
        if len(came) != due:
            wrongs.append(f"{each.place}: {due} were due, and there came: {'; '.join(map(str, came))}")
    return wrongs


async def _wrong_alerts(on, fire) -> list[str]:
    """Rules are evaluated by Prometheus itself, too; and what people are told has nothing left open."""
    wrongs = []
    for group in (await on.api.get("rules"))["groups"]:
        wrongs += [f"rule {rule['name']}: {rule}" for rule in group["rules"] if rule["health"] != "ok"]
    found = [each for each in (await on.api.get("alerts"))["alerts"] if each["state"] == "firing"]
    reported = [text for each in found for text in each["annotations"].values()]
    wrongs += [
        f"an alert says {text!r}" for text in reported if "<no value>" in text or "error" in text or "%!" in text
    ]
    named = sorted((each["labels"]["alertname"], each["labels"].get("project", "")) for each in found)
    due = sorted((each["alertname"], each.get("project", "")) for each in fire)
    return wrongs if named == due else [*wrongs, f"alerts: {due} were due, {named} fire"]


async def _wrong_targets(on) -> list[str]:
    """Both are read, each second, without an error."""
    targets = (await on.api.get("targets"))["activeTargets"]
    wrongs = [
        f"target {each['scrapeUrl']}: {each['lastError'] or each['health']}"
        for each in targets
        if each["health"] != "up"
    ]
    missed = await on.api.query(f"sum_over_time(up[{_RUNS_S}s]) < count_over_time(up[{_RUNS_S}s])")
    return wrongs + [f"target {each}: it was not always read" for each in missed]


async def _wrong_labels(on, seen) -> list[str]:
    """As many as may be, and what is left out is told: the rest of the node's projects."""
    labels = by("instance", {node.address: exactly(load.LABELS + 1) for node in seen.nodes})
    came = await on.api.query('count by (instance) (count by (instance, project) ({project!="",instance!=""}))')
    all_published = await on.api.query(f"evenlane_projects - {load.LABELS} != evenlane_projects_left_out")
    wrongs = [wrong for wrong in (labels.wrong(came),) if wrong]
    return [
        *(f"labels: {wrong}" for wrong in wrongs),
        *(f"left out, of {load.LABELS}: {each}" for each in all_published),
    ]
