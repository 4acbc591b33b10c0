"""docs/reference/settings.md: the groups, types, defaults and texts of `Settings`."""

from __future__ import annotations

import ast
import inspect
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, get_type_hints

from markup import joined, table

from evenlane.engine.base.config.scaling import ScalingSettings
from evenlane.engine.base.config.settings import CLUSTER_SETTINGS, Settings
from evenlane.engine.base.durations import format_duration
from evenlane.engine.base.sizes import format_size
from evenlane.engine.cluster.cluster_config import ClusterConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARTS = (Settings, ScalingSettings)
_GROUP = re.compile(r"^    # ---- (.+)$", re.MULTILINE)
_FIELD = re.compile(r"^    (\w+): ", re.MULTILINE)
_ALLOWED = {
    "nats_url": "`nats://HOST:PORT`",
    "http_url": "`http://HOST:PORT` or `https://HOST:PORT`",
    "store": "as `nats`, or `memory://[NAME]`",
    "host_port": "`HOST:PORT`",
    "rate": "above 0",
    "share": "`0%` to `100%`",
    "wait_target": "`pN wait DURATION`",
    "listen_address": "`HOST:PORT`",
    "https_url": "`https://HOST:PORT`",
    "kubernetes_name": "a name",
    "flag": "`true`, `false`",
    "file": "a file",
    "folder": "a folder",
    "text": "a text",
    "inbox": "`_INBOX`, or `_INBOX.NAME`",
    "name": "a name",
}


def made() -> str:
    return joined(_tables())


def _tables() -> Iterator[str]:
    texts, defaults = _texts(), _defaults()
    parsers = {key: hint.__metadata__[0] for key, hint in get_type_hints(Settings, include_extras=True).items()}
    for group, keys in _groups():
        title, _, about = group.partition(": ")
        yield f"## {title}"
        yield f"{about[:1].upper()}{about[1:]}." if about else ""
        rows = ((f"`{key}`", _default(key, defaults[key]), _allowed(parsers[key]), texts[key]) for key in keys)
        yield table(("setting", "default", "allowed", "meaning"), rows)


def _groups() -> list[tuple[str, list[str]]]:
    found = []
    for part in _PARTS:
        pieces = _GROUP.split(inspect.getsource(part).partition("    def ")[0])
        found += [(title, _FIELD.findall(text)) for title, text in zip(pieces[1::2], pieces[2::2], strict=True)]
    return found


def _texts() -> dict[str, str]:
    """The text under each field."""
    classes = (each for part in _PARTS for each in ast.parse(inspect.getsource(part)).body)
    return {
        field.target.id: " ".join(str(text.value.value).split())
        for each in classes
        if isinstance(each, ast.ClassDef)
        for field, text in pairwise(each.body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def _defaults() -> dict[str, object]:
    cluster_config = ClusterConfig()
    return Settings().shown() | {key: getattr(cluster_config, key) for key in CLUSTER_SETTINGS}


def _default(key: str, value: object) -> str:
    text = f"`{value}`"
    match value:
        case None:
            text = ""
        case bool():
            text = text.lower()
        case list() | tuple():
            text = f"`{','.join(map(str, value))}`"
        case float() if key == "scaling_cpu":
            text = f"`{value:.0%}`"
        case float() if key not in CLUSTER_SETTINGS and not key.startswith("scaling_projects"):
            text = f"`{format_duration(value)}`"
        case int() if key.endswith("budget"):
            text = f"`{format_size(value)}`"
        case int() | float():
            text = f"{value:,.15g}" if isinstance(value, float) else f"{value:,}"
    return text


def _allowed(parse: Any) -> str:
    """The values that a parser of `values` accepts, by its kind and bounds."""
    kind, bounds = parse.__qualname__.partition(".")[0], inspect.getclosurevars(parse).nonlocals
    low, high = bounds.get("low"), bounds.get("high")
    match kind:
        case "whole" | "number":
            return f"{low:,} to {high:,}" if kind == "whole" else f"{low:,.15g} to {high:,.15g}"
        case "size":
            return f"`{format_size(low)}` to `{format_size(high)}`"
        case "duration" | "zero_or_duration" | "whole_seconds":
            before = {"zero_or_duration": "0, or ", "whole_seconds": "whole seconds, "}.get(kind, "")
            return f"{before}`{format_duration(low)}` to `{format_duration(high)}`"
        case "choice":
            return ", ".join(f"`{each}`" for each in bounds["allowed"])
        case "list_of":
            return f"{low} to {high} of {_allowed(bounds['parse_one'])}"
    return _ALLOWED[kind]
