"""Each query of the dashboards and each recording rule gives the right value under a known load (values/load.py)."""

import pytest

from tests.dashboards.files import dashboards, panels
from tests.dashboards.values import load
from tests.dashboards.values.expected import BOARDS, answers, recorded_answers
from tests.dashboards.values.promtool import Question, wrong_answers
from tests.dashboards.values.series import input_series
from tests.dashboards.values.vectors import scope
from tests.prometheus import expressions

PROJECTS = sorted({lane.project for lane in load.LANES} - {"other"})


def unanswered(right, asked):
    """Queries without an answer, and answers without a query."""
    return right.keys() ^ set(asked)


def _questions(board, project=None, node=None):
    """The queries of a dashboard with these choices, with their answers."""
    asked = [
        each for each in (*expressions.panels(), *expressions.annotations()) if each.place.startswith(f"{board} /")
    ]
    right = answers(board, scope(project, node))
    assert set() == unanswered(right, [each.place for each in asked])
    chosen = {
        "env": "online", "priority": ".*", "project": project or ".*",
        "instance": load.NODES[node].address if node else ".*", "__rate_interval": f"{load.WINDOW_S}s",
        "__range": f"{load.RANGE_S}s", "__interval": f"{load.SPAN_S}s",
    }  # fmt: skip
    where = f"({project or 'all projects'}, {node or 'all nodes'})"
    return [
        Question(f"{each.place} {where}", expressions.filled_in(each.expr, chosen), right[each.place]) for each in asked
    ]


def test_panels_and_recording_rules_give_the_right_values(tmp_path):
    """E7, X7, X8: with a project within its quota, one at three times its quota, a paused, a failing, an expiring, a
    purged, a draining and a starved one, on two nodes: of all nodes, of one node, and of each project.
    """
    right = recorded_answers()
    rules = {each.place: each.expr for each in expressions.rules() if each.place.startswith("record /")}
    assert set() == unanswered(right, rules)
    questions = [Question(place, expr, right[place]) for place, expr in rules.items()]
    for board in BOARDS.keys() - {"tenant"}:
        questions += _questions(board)
        questions += _questions(board, node="a")
    for project in (*PROJECTS, "nobody"):
        questions += _questions("tenant", project)
    questions += _questions("tenant", "steady", "b")
    if wrong := wrong_answers(tmp_path, input_series(), questions):
        pytest.fail(wrong, pytrace=False)


MUTANTS = (
    ("fleet / stat / Handled / A", 'outcome="handled",', ""),
    ("fleet / stat / Backlog / A", "sum", "max"),
    ("fleet / table / The nodes / E", "lease_left", "lease_age"),
    ("fleet / timeseries / Slots busy by node / A", "slots_busy", "partitions"),
    ("fleet / timeseries / Dwell time / B", "0.99", "0.9"),
    ("fleet / timeseries / Messages that wait, by reason / A", "waiting_message_seconds", "waiting_seconds"),
    ("delivery / stat / Success rate / A", "handled|retried|dead", "handled|retried"),
    ("delivery / stat / Dead letters / A", "[600s]", "[60s]"),
    ("delivery / timeseries / Failed of attempts, by priority / A", "retried|dead", "dead"),
    ("fairness / stat / Least share / A", "min", "max"),
    ("fairness / table / Projects by slots used / I", "fairness|", ""),
)


def test_wrong_queries_are_found(tmp_path):
    """E7: the test above can fail."""
    boards = ("fleet", "delivery", "fairness")
    known = {each.place.rpartition(" (")[0]: each for board in boards for each in _questions(board)}
    mutants = []
    for place, old, new in MUTANTS:
        assert old in known[place].expr, place
        mutants.append(Question(place, known[place].expr.replace(old, new, 1), known[place].answer))
    said = wrong_answers(tmp_path, input_series(), mutants, rules=())
    assert [] == [place for place, *_ in MUTANTS if place not in said]


def test_figures_are_empty_while_no_node_is_scraped(tmp_path):
    """E7: 0 would look as if all were well."""
    chosen = dict.fromkeys(("__rate_interval", "__range", "__interval"), "1m") | {
        "env": "nowhere", "project": ".*", "priority": ".*", "instance": ".*",
    }  # fmt: skip
    zero = {"fleet / stat / Nodes / A", "fleet / stat / Alerts firing / A"}
    asked = [each for each in expressions.panels() if "$env" in each.expr]
    questions = [
        Question(each.place, expressions.filled_in(each.expr, chosen), {(): 0.0} if each.place in zero else {})
        for each in asked
    ]
    assert zero < {each.place for each in asked}
    assert "" == wrong_answers(tmp_path, input_series(), questions, rules=())


def test_query_without_an_answer_is_found():
    """E7."""
    asked = ["fleet / a", "fleet / b"]
    assert {"fleet / b", "fleet / c"} == unanswered({"fleet / a": {}, "fleet / c": {}}, asked)


@pytest.mark.parametrize("board", BOARDS)
def test_tables_have_the_labels_of_their_columns_alone(board):
    """E7: Grafana shows any other label as a column."""
    right = answers(board, scope())
    for panel in panels(dashboards()[board]):
        for target in panel["targets"] if panel["type"] == "table" else ():
            answer = right[f"{board} / table / {panel['title']} / {target['refId']}"]
            named = next(each["options"]["renameByName"] for each in panel["transformations"] if each["options"])
            assert {label for labels in answer for label, _ in labels} <= named.keys(), panel["title"]
