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


def _questions(board, project=None, node=None, subscription="()"):
    """The queries of a dashboard with these choices, with their answers."""
    asked = [
        each for each in (*expressions.panels(), *expressions.annotations()) if each.place.startswith(f"{board} /")
    ]
    right = answers(board, scope(project, node))
    assert set() == unanswered(right, [each.place for each in asked])
    chosen = {
        "env": "online", "subscription": subscription, "priority": ".*", "project": project or ".*",
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


@pytest.mark.parametrize(("chosen", "job"), [("()", "evenlane"), ("audit", "audit")])
def test_subscription_shows_only_its_own_figures(tmp_path, chosen, job):
    """E7, K10: the same load again, of the subscription `audit`, changes no figure of the unnamed one; and the other
    way round. Only the firing alerts are those of both.
    """
    questions = [
        each._replace(answer={_with(labels, "job", job): value for labels, value in each.answer.items()})
        for board in BOARDS
        for each in _questions(board, "steady" if board == "tenant" else None, subscription=chosen)
        if "ALERTS" not in each.expr
    ]
    if wrong := wrong_answers(tmp_path, [*input_series(), *_of_audit()], questions):
        pytest.fail(wrong, pytrace=False)


def test_recording_rules_have_figures_of_each_subscription(tmp_path):
    """E7, K10."""
    right = recorded_answers()
    questions = []
    for each in expressions.rules():
        if each.place in right:
            unnamed = right[each.place]
            added = [("subscription", "audit")] if any("env" in dict(labels) for labels in unnamed) else []
            of_audit = {
                tuple(sorted([*_with(labels, "job", "audit"), *added])): value for labels, value in unnamed.items()
            }
            questions.append(Question(each.place, each.expr, {**unnamed, **of_audit}))
    if wrong := wrong_answers(tmp_path, [*input_series(), *_of_audit()], questions):
        pytest.fail(wrong, pytrace=False)


def _of_audit():
    """The series of the load, as nodes of the subscription `audit` export them."""
    renamed = {'env="online"': 'env="online",subscription="audit"', 'job="evenlane"': 'job="audit"'}
    found = [each for each in input_series() if "subscription" not in each["series"]]
    for each in found:
        for old, new in renamed.items():
            each["series"] = each["series"].replace(old, new)
    return found


def _with(labels, name, value):
    """The same labels, with another value of one of them, if it is there."""
    return tuple((label, value if label == name else was) for label, was in labels)


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
        "env": "nowhere", "subscription": "()", "project": ".*", "priority": ".*", "instance": ".*",
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
