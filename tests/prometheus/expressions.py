"""Every expression in dashboards and rule files, ready for Prometheus: Grafana's variables are replaced, and ranges of
minutes are shortened to the window of the load.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.dashboards import files
from tests.prometheus.seen import WINDOW_S

_RANGE = re.compile(r"\[\d+[mhd](:\w*)?\]")
_OFFSET = re.compile(r"\boffset \d+[mhd]\b")
_FOR = re.compile(r"^(\s*)(for|keep_firing_for|interval): *\S+$", re.MULTILINE)
_LEGEND = re.compile(r"{{\s*(\w+)\s*}}")
_LABEL_VALUES = re.compile(r"label_values\((.+), *(\w+)\)")
_QUERY_RESULT = re.compile(r"query_result\((.+)\)")


class Expression(NamedTuple):
    """`place` is `<dashboard> / <type of panel> / <title> / <ref>`; for annotations and rules it is similar."""

    place: str
    expr: str
    legend: frozenset[str] = frozenset()

    def asked(self, variables: Mapping[str, str]) -> str:
        """Return the query for Prometheus."""
        return short(filled_in(self.expr, variables))


class Variable(NamedTuple):
    """A variable of a dashboard: the values of `label` in the series that `expr` selects, or, if `computed`, has."""

    place: str
    expr: str
    label: str
    computed: bool = False


def filled_in(text: str, variables: Mapping[str, str]) -> str:
    for name in sorted(variables, key=len, reverse=True):  # `$__rate_interval` before `$__rate`
        text = text.replace(f"${{{name}}}", variables[name]).replace(f"${name}", variables[name])
    assert "$" not in text.replace("$|", "").replace('$"', ""), f"an unknown variable: {text}"
    return text


def short(text: str) -> str:
    """Shorten ranges and offsets to the window."""
    text = _OFFSET.sub(f"offset {WINDOW_S}s", text)
    return _RANGE.sub(lambda found: f"[{WINDOW_S}s{':1s' if found[1] else ''}]", text)


def panels() -> Iterator[Expression]:
    for name, board in files.dashboards().items():
        for panel in files.panels(board):
            for target in panel["targets"]:
                place = f"{name} / {panel['type']} / {panel['title']} / {target['refId']}"
                yield Expression(place, target["expr"], frozenset(_LEGEND.findall(target["legendFormat"])))


def annotations() -> Iterator[Expression]:
    for name, board in files.dashboards().items():
        for each in board["annotations"]["list"]:
            yield Expression(f"{name} / annotation / {each['name']}", each["target"]["expr"])


def variables() -> Iterator[Variable]:
    for name, board in files.dashboards().items():
        for each in files.variables(board).values():
            if each["type"] == "query":
                place = f"{name} / variable / {each['name']}"
                if computed := _QUERY_RESULT.fullmatch(each["query"]):
                    yield Variable(place, computed[1], each["name"], computed=True)
                    continue
                found = _LABEL_VALUES.fullmatch(each["query"])
                assert found, f"{place}: an unknown query: {each['query']}"
                yield Variable(place, found[1], found[2])


def rules() -> Iterator[Expression]:
    for rule in files.rules():
        kind = "alert" if "alert" in rule else "record"
        labels = rule.get("labels", {}) if kind == "record" else {}
        extra = "".join(f" {value or '-'}" for value in labels.values())
        yield Expression(f"{kind} / {rule[kind]}{extra}", rule["expr"])


def quick_rules(folder: Path) -> list[Path]:
    """Copy the rule files for tests that take seconds: short ranges, evaluated each second, alerts without delay."""
    copies = []
    for path in files.RULES:
        copy = folder / path.name
        text = _FOR.sub(_at_once, short(path.read_text(encoding="utf-8")))
        copy.write_text(text, encoding="utf-8")
        copies.append(copy)
    return copies


def _at_once(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}: {'1s' if found[2] == 'interval' else '0s'}"
