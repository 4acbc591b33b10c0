"""The right answer to every query of the dashboards, annotations and recording rules under the load, by place."""

from collections.abc import Mapping

from tests.dashboards.values.expected import delivery, fairness, fleet, marks, recorded, tenant
from tests.dashboards.values.promtool import Vector
from tests.dashboards.values.vectors import Scope

BOARDS = {"fleet": fleet, "tenant": tenant, "fairness": fairness, "delivery": delivery}


def answers(board: str, chosen: Scope) -> dict[str, Vector]:
    """The answers to the queries of a dashboard."""
    return {
        f"{board} / {place}": answer for place, answer in {**BOARDS[board].expected(chosen), **marks.expected()}.items()
    }


def recorded_answers() -> Mapping[str, Vector]:
    return {f"record / {name}": answer for name, answer in recorded.expected().items()}
