"""Asks expressions of promtool, which evaluates the rules over given series, and compares the answers."""

import json
import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.dashboards.files import RULES, parsed, program
from tests.dashboards.values.load import AT_S, STEP_S

_EXACT = 1e-6
_ORDER = ("evenlane-targets", "evenlane-tenants", "evenlane-fleet", "evenlane-alerts-tenants", "evenlane-alerts-fleet")
_FAILED = re.compile(r'expr: ("(?:[^"\\]|\\.)*"), time:')

Vector = Mapping[tuple[tuple[str, str], ...], float]
"""Values by labels, which are sorted pairs."""


class Question(NamedTuple):
    """An expression, and the only right answer. `place` is where the expression is used."""

    place: str
    expr: str
    answer: Vector


def wrong_answers(
    folder: Path, series: Sequence[dict[str, str]], questions: Sequence[Question], rules: Sequence[Path] = RULES
) -> str:
    """Return what promtool says of the wrong answers, with their places; "" if all are right."""
    groups = [group["name"] for path in rules for group in parsed(path)["groups"]]
    content = {
        "rule_files": [*map(str, rules)],
        "evaluation_interval": f"{2 * STEP_S}s",
        "group_eval_order": sorted(groups, key=_ORDER.index),
        "tests": [{"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": [*map(_asked, questions)]}],
    }
    file = folder / "values.test.yml"
    file.write_text(json.dumps(content).replace("Infinity", ".inf"), encoding="utf-8")
    ran = subprocess.run(
        [program("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False, timeout=120
    )
    if ran.returncode == 0:
        return ""
    places = {json.dumps(_rounded(each.expr)): each.place for each in questions}
    said = ran.stdout + ran.stderr
    return _FAILED.sub(lambda found: f"{places.get(found[1], '?')}: {found[0]}", said)


def _asked(question: Question) -> dict[str, object]:
    samples = [
        {"labels": "{" + ",".join(f'{label}="{value}"' for label, value in labels) + "}", "value": _round(value)}
        for labels, value in question.answer.items()
    ]
    return {"expr": _rounded(question.expr), "eval_time": f"{AT_S}s", "exp_samples": samples}


def _rounded(expr: str) -> str:
    return f"round(({expr}), {_EXACT:g})"


def _round(value: float) -> float:
    """As Prometheus rounds, to the last bit."""
    return value if math.isinf(value) else math.floor(value * (1 / _EXACT) + 0.5) / (1 / _EXACT)
