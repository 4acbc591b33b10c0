"""Generates the JSON schema of dashboards from the types that Grafana publishes (needs npm and node):
`python -m tests.dashboards.schema.generate`. Tests read the result and need neither.
"""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.support import ROOT

HERE = Path(__file__).parent
SCHEMA = HERE / "dashboard.schema.json"
_COMPOSE = ROOT / "deploy/observability/compose.yaml"
_TOOLS = ("ts-json-schema-generator@2.4.0", "typescript@5.9.3")
_STUB = """
export type Scope = { metadata: { name: string } };
export type ScopeSpec = object;
export type ScopeSpecFilter = object;
"""
_CONFIG = {
    "compilerOptions": {
        "strict": True, "skipLibCheck": True, "module": "esnext", "moduleResolution": "bundler", "noEmit": True,
        "target": "es2022", "types": [],
    },
    "files": ["dashboard.ts"],
}  # fmt: skip
_STANDARD = ("unit", "decimals", "color", "links", "thresholds", "mappings", "min", "max", "displayName", "noValue")
"""Overrides of fields that every kind of panel has."""

Node = dict[str, Any]


def version() -> str:
    """The version of Grafana that `deploy/observability` runs."""
    image = yaml.safe_load(_COMPOSE.read_text(encoding="utf-8"))["services"]["grafana"]["image"]
    return image.rpartition(":")[2]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        schema = _generate(Path(name), version())
    SCHEMA.write_text(json.dumps(schema, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _generate(folder: Path, grafana: str) -> Node:
    _install(folder, grafana)
    shutil.copy(HERE / "dashboard.ts", folder)
    (folder / "tsconfig.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    _run(folder, "npx", "tsc", "--project", ".")
    printed = _run(
        folder, "npx", "ts-json-schema-generator", "--path", "dashboard.ts", "--type", "Dashboard",
        "--tsconfig", "tsconfig.json", "--no-type-check", "--jsDoc", "none",
    )  # fmt: skip
    return _refined(json.loads(printed), grafana)


def _install(folder: Path, grafana: str) -> None:
    """Install the types. The plugin for Prometheus is only unpacked, as it depends on all of Grafana's interface."""
    _run(folder, "npm", "install", "--silent", "--no-save", "--prefix", ".", f"@grafana/schema@{grafana}", *_TOOLS)
    package = _run(folder, "npm", "pack", "--silent", f"@grafana/prometheus@{grafana}").strip()
    (folder / "prometheus").mkdir()
    _run(folder, "tar", "--extract", "--file", package, "--directory", "prometheus")
    stub = folder / "node_modules/@grafana/data"
    stub.mkdir()
    (stub / "index.d.ts").write_text(_STUB, encoding="utf-8")


def _run(folder: Path, *command: str) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def _refined(schema: Node, grafana: str) -> Node:
    """Choose the type of a panel and of an override by its name, so that an error names the wrong field."""
    known = schema["definitions"]
    kinds = {known[name]["properties"]["type"]["const"]: name for name in _names(known["Panel"])}
    for name in kinds.values():
        if "fieldConfig" in known[name]["properties"]:
            _refine_overrides(known[name]["properties"]["fieldConfig"])
    known["Panel"] = _by_value("type", {kind: {"$ref": f"#/definitions/{name}"} for kind, name in kinds.items()})
    return {"title": f"Dashboard of Grafana {grafana}", "grafana": grafana, **schema}


def _names(union: Node) -> list[str]:
    return [each["$ref"].rpartition("/")[2] for each in union["anyOf"]]


def _refine_overrides(config: Node) -> None:
    fields = config["properties"]["defaults"]["properties"]
    values = {name: fields[name] for name in _STANDARD}
    values |= {f"custom.{name}": value for name, value in fields["custom"].get("properties", {}).items()}
    one = config["properties"]["overrides"]["items"]["properties"]["properties"]
    given = {
        name: {"properties": {"id": {}, "value": value}, "required": ["value"], "additionalProperties": False}
        for name, value in values.items()
    }
    one["items"] = _by_value("id", given)


def _by_value(field: str, schemas: Node) -> Node:
    """A schema for objects whose type `field` tells."""
    cases = [{"if": {"properties": {field: {"const": value}}}, "then": then} for value, then in schemas.items()]
    return {"type": "object", "required": [field], "properties": {field: {"enum": [*schemas]}}, "allOf": cases}


if __name__ == "__main__":
    main()
