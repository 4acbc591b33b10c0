"""Builds the dashboards: `python -m evenlane.dashboards.build`. It needs grafana-foundation-sdk, for development only;
the package contains its output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from evenlane.dashboards import delivery, fairness, fleet, tenant

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard

FOLDER = Path(__file__).parent / "grafana"


def build_files() -> dict[str, str]:
    """Return the text of each file, by name."""
    return {
        "fleet.json": _text(fleet.dashboard()),
        "tenant.json": _text(tenant.dashboard()),
        "fairness.json": _text(fairness.dashboard()),
        "delivery.json": _text(delivery.dashboard()),
    }


def _text(dashboard: Dashboard) -> str:
    document = json.loads(json.dumps(dashboard, cls=JSONEncoder))
    _follow_schema(document)
    return json.dumps(document, indent=2) + "\n"


def _follow_schema(document: dict[str, Any]) -> None:
    """Mend the output of the SDK, which differs from the schema of the Grafana in deploy/observability."""
    for each in (*document["links"], *document["annotations"]["list"]):
        del each["placement"]  # the SDK's default would hide the links in a menu
    for each in document["annotations"]["list"]:
        each["target"] = {"refId": "Anno", "expr": each.pop("expr"), "interval": each.pop("step")}
        each["target"]["datasource"] = each["datasource"]
    for each in document["templating"]["list"]:
        for name in ("auto", "auto_min", "auto_count"):  # of variables for intervals
            del each[name]
    for panel in document["panels"]:
        panel.get("options", {}).pop("footer", None)  # columns have it now
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        if "links" in defaults:  # the SDK uses the type of links between dashboards
            defaults["links"] = [{"title": link["title"], "url": link["url"]} for link in defaults["links"]]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in build_files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
