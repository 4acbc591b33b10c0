"""Renders the report as one self-contained HTML page: no server, no network, no other file."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Styles and parts of the status page, and the report's own.
_STYLES = (
    ("evenlane.engine.http", "page/uplot/uPlot.min.css"),
    *(("evenlane.engine.http", f"page/css/{name}.css") for name in ("base", "frame", "parts")),
    ("evenlane.spark", "out/page/report.css"),
)
_PLOTS = ("evenlane.engine.http", "page/uplot/uPlot.iife.min.js")
_LICENCE = ("evenlane.engine.http", "page/uplot/LICENSE")
_SCRIPTS = (
    *(("evenlane.engine.http", f"page/js/{name}.js") for name in ("format", "dom", "spark", "touch", "words")),
    *(
        ("evenlane.spark", f"out/page/{name}.js")
        for name in ("data", "sentences", "table", "plots", "tenant", "report")
    ),
)
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:function|class|const) (\w+))", re.MULTILINE)


def page(document: Mapping[str, Any]) -> str:
    """Render `document`, the content of report.json. Nothing in it is interpreted as HTML, and only our scripts run."""
    style = "\n".join(map(_text, _STYLES))
    plots = f"/*\n{_text(_LICENCE).strip()}\n*/\n{_text(_PLOTS)}"
    script = _read_bundle()
    parts = {
        "POLICY": _policy([plots, script], style),
        "TITLE": escape(f"Evenlane: {_whose(document)}, {document['to'] or 'no data'}"),
        "STYLE": style,
        "PLOTS": plots,
        "SCRIPT": script,
        "REPORT": _embed(document),
    }
    return re.sub(
        "|".join(f"@{name}@" for name in parts),
        lambda found: parts[found[0][1:-1]],
        _text(("evenlane.spark", "out/page/page.html")),
    )


def _whose(document: Mapping[str, Any]) -> str:
    name = document["subscription"]
    return document["env"] if name is None else f"{document['env']}, subscription {name}"


def _read_bundle() -> str:
    """Join all modules into one script, each after its imports, in a scope that hides everything except its exports."""
    return '"use strict";\n(() => {\n' + "".join(_scope(_text(name)) for name in _SCRIPTS) + "})();\n"


def _scope(module: str) -> str:
    exports = ", ".join(_EXPORT.findall(module))
    body = _EXPORT.sub("", _IMPORT.sub("", module))
    return f"const {{ {exports} }} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"


def _embed(document: Mapping[str, Any]) -> str:
    """Escape JSON for an HTML element: it has no `<`, so it can't end the element."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _policy(scripts: list[str], style: str) -> str:
    hashes = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {hashes}; style-src {_hash(style)}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _text(name: tuple[str, str]) -> str:
    package, path = name
    return files(package).joinpath(path).read_text(encoding="utf-8")
