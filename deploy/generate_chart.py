"""Writes the parts of the chart that come from elsewhere in the repository: `python deploy/generate_chart.py`. With
`--check` it only compares.

These are copies of dashboards and rules, which a chart can't link to; the settings in the schema of values; and the
version.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from evenlane.engine._version import __version__
from evenlane.engine.base.config.settings import KEYS, Settings

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/helm/evenlane"
_RULES = ("alerts.rules.yml", "shared.rules.yml")  # the targets are values

# Settings that have values of their own, or are of the pod.
_ELSEWHERE = re.compile(
    r"nats|nats_monitor|store|etcd|env|node|drain_grace|http_port|http_host|http_tokens?_file|push_secrets|push_ca"
    r"|scaling|scaling_(min|max|deployment|namespace|listen)"
    r"|(nats|etcd)_(user|password_file|creds_file|ca|cert|key)"
)


def build_files() -> Iterator[tuple[Path, str]]:
    """Yield each generated file with its text."""
    for source in sorted((ROOT / "dashboards/grafana").glob("*.json")):
        yield CHART / "files/dashboards" / source.name, source.read_text(encoding="utf-8")
    for name in _RULES:
        yield CHART / "files/rules" / name, (ROOT / "dashboards/prometheus" / name).read_text(encoding="utf-8")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    schema["properties"]["config"]["properties"] = config_properties()
    yield CHART / "values.schema.json", json.dumps(schema, indent=2) + "\n"
    chart = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    yield CHART / "Chart.yaml", re.sub(r"(?m)^((?:app)?[vV]ersion:) .*$", rf"\1 {__version__}", chart)


def config_properties() -> dict[str, Any]:
    """The schema of `config`: each setting that has no value of its own."""
    hints = get_type_hints(Settings)
    return {key: _schema(hints[key]) for key in KEYS if not _ELSEWHERE.fullmatch(key)}


def _schema(hint: Any) -> dict[str, Any]:
    """What a setting takes. A number may be written with a unit, which the node checks."""
    if get_origin(hint) is Literal:
        return {"enum": [*get_args(hint)]}
    if isinstance(hint, UnionType):
        [hint] = (each for each in get_args(hint) if each is not type(None))
    if hint is bool:
        return {"type": "boolean"}
    if get_origin(hint) is tuple:
        return {"type": ["string", "array"], "items": {"type": "string"}}
    return {"type": ["number", "string"] if hint in {int, float} else "string"}


def main(*arguments: str) -> int:
    """Return how many files were stale, at most 1."""
    stale = [(path, text) for path, text in build_files() if not path.exists() or path.read_text("utf-8") != text]
    for path, text in stale:
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is stale: run `python deploy/generate_chart.py`")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)} written")
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
