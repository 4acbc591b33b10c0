"""Evaluates every expression in Prometheus, and collects wrong results."""

from collections.abc import Iterable, Mapping, Sequence

from tests.prometheus import expected, expressions
from tests.prometheus.api import Api, Refused, Series
from tests.prometheus.expect import Check
from tests.prometheus.expected.common import INTERVAL_S, RANGE_S
from tests.prometheus.expected.tenant import PROJECT, of_others
from tests.prometheus.expressions import Expression
from tests.prometheus.seen import WINDOW_S, Seen

_MOST_SHOWN = 12
_GRAFANA = {
    "__rate_interval": f"{WINDOW_S}s", "__range": f"{RANGE_S}s", "__interval": f"{INTERVAL_S}s",
    "env": "online", "subscription": "()", "instance": ".*", "priority": ".*",
}  # fmt: skip


def variables(dashboard: str, project: str = PROJECT, **other: str) -> dict[str, str]:
    """The values that Grafana would use: all projects, except in the dashboard of one project."""
    return {**_GRAFANA, "project": project if dashboard == "tenant" else ".*", **other}


class Proof:
    """`wrongs` are sentences: the expression, the error, and the result."""

    def __init__(self, api: Api, seen: Seen) -> None:
        self._api, self._seen = api, seen
        self.wrongs: list[str] = []

    async def panels(self) -> None:
        """Check every expression of every panel, and the labels in its legend."""
        known = {each.place: each for each in expressions.panels()}
        due = expected.panels(self._seen)
        self._all_proved(known, due)
        for place in known.keys() & due.keys():
            await self._panel(known[place], due[place], variables(place.partition(" / ")[0]))
        for project, checks in of_others(self._seen).items():
            for short, check in checks.items():
                place = f"tenant / {short}"
                if place in known:
                    await self._panel(known[place], check, variables("tenant", project))

    async def rules(self) -> None:
        known = {each.place: each for each in expressions.rules()}
        due = expected.rules(self._seen)
        self._all_proved(known, due)
        for place in known.keys() & due.keys():
            await self._ask(place, known[place].asked({}), due[place])

    async def elsewhere(self) -> None:
        """Check that panels for another environment show nothing of this one."""
        for each in expressions.panels():
            if "env" not in each.expr:
                continue
            name = each.place.partition(" / ")[0]
            for series in await self._came(each.place, each.asked(variables(name, env="nowhere"))):
                if series.value != 0:
                    self._wrong(each.place, "it is a series of another environment", each.expr, [series])

    def _all_proved(self, known: Mapping[str, Expression], due: Mapping[str, Check]) -> None:
        self.wrongs += [f"{place}: it has no expected result" for place in sorted(known.keys() - due.keys())]
        self.wrongs += [f"{place}: there is no such expression" for place in sorted(due.keys() - known.keys())]

    async def _panel(self, panel: Expression, check: Check, values: Mapping[str, str]) -> None:
        place = panel.place if values["project"] in {".*", PROJECT} else f"{panel.place} (of {values['project']})"
        for series in await self._ask(place, panel.asked(values), check):
            if missing := panel.legend - series.labels.keys():
                self._wrong(place, f"its legend names {', '.join(sorted(missing))}", panel.expr, [series])
                break

    async def _ask(self, place: str, expr: str, check: Check) -> Sequence[Series]:
        came = await self._came(place, expr)
        if wrong := check.wrong(came):
            self._wrong(place, wrong, expr, came)
        return came

    async def _came(self, place: str, expr: str) -> Sequence[Series]:
        try:
            return await self._api.query(expr)
        except Refused as error:
            self._wrong(place, str(error), expr, [])
            return []

    def _wrong(self, place: str, what: str, expr: str, came: Iterable[Series]) -> None:
        lines = [str(each) for each in sorted(came, key=lambda each: (each.value == 0, str(each)))]
        shown = [f"    {line}" for line in lines[:_MOST_SHOWN]] or ["    (nothing)"]
        more = [f"    and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
        self.wrongs.append("\n".join([f"{place}: {what}", f"  {' '.join(expr.split())}", *shown, *more]))
