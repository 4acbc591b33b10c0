"""Expected results of each expression in dashboards and rules under the load, by place (expressions.py)."""

from collections.abc import Mapping

from tests.prometheus.expect import Check
from tests.prometheus.expected import alerting, delivery, fairness, fleet, recorded, tenant
from tests.prometheus.seen import Seen


def panels(seen: Seen) -> dict[str, Check]:
    return {
        **_under("fleet", fleet.expected(seen)),
        **_under("tenant", tenant.expected(seen)),
        **_under("fairness", fairness.expected(seen)),
        **_under("delivery", delivery.expected(seen)),
    }


def rules(seen: Seen) -> dict[str, Check]:
    return {**_under("record", recorded.expected(seen)), **_under("alert", alerting.expected(seen))}


def _under(name: str, checks: Mapping[str, Check]) -> dict[str, Check]:
    return {f"{name} / {place}": check for place, check in checks.items()}
