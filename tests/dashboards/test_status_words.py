"""The alerts have the names, severities and words of the statuses (docs/reference/figures.md)."""

import re

import pytest

from evenlane.engine.core.status.judge import judge
from evenlane.engine.core.status.status import MEANINGS, NAMES
from tests.dashboards.files import ROOT, alerts
from tests.unit.core.status.cases import CASES, facts, mid

WITHOUT = {"ok", "waiting", "deleted", "draining"}
"""Statuses that need no alert, or that a person has just caused."""

_FIGURES = re.compile(r"\d+([.,]\d+)*")
_TEMPLATES = re.compile(r"{{.*?}}")
_PARTS = {
    "late": "`evenlane why acme --env online` says what it waits for",
    "over_quota": "its producer slows down, or a ",
    "expiring": "`evenlane topics set acme --ttl DURATION --env online` lets them wait for longer",
}
"""What an alert has of a remedy with a wait reason, or a quota that would do: it knows neither, and names `why`."""

_SLOW = "slow endpoint"  # metrics don't say which topics have an endpoint: EvenlaneBacklogOld says that it is late
ALERTED = sorted(set(NAMES) - WITHOUT)


def _of(status):
    """The alerts of a status, by name."""
    return {name: rule for name, rule in alerts().items() if rule["labels"].get("status") == status}


def _judged(name):
    """The statuses of this name among the cases."""
    found = [status for given, *_ in CASES for status in judge(facts(**given)) if status.name == name]
    assert found, name
    return found


def _filled_in(text):
    """A text of an alert for the project and the environment of the cases, without figures."""
    text = text.replace("{{ $labels.project }}", "acme").replace("{{ $labels.env }}", "online")
    return _without_figures(_TEMPLATES.sub("", text))


def _without_figures(text):
    return " ".join(_FIGURES.sub("", text).split())


def test_statuses_have_alerts():
    """X13: each status that somebody should hear of has an alert, and no alert has an unknown one."""
    assert {rule["labels"]["status"] for rule in alerts().values() if "status" in rule["labels"]} == set(ALERTED)


@pytest.mark.parametrize("name", ALERTED)
def test_severities_are_those_of_the_status(name):
    """X13: an alert is as urgent as its status."""
    assert set(MEANINGS[name][0].split(", ")) == {rule["labels"]["severity"] for rule in _of(name).values()}


@pytest.mark.parametrize("name", ALERTED)
def test_summaries_have_the_words_of_the_status(name):
    """X13: a summary names the project, or what all its projects share, and then has the label of the status."""
    for alert, rule in _of(name).items():
        who, _, words = rule["annotations"]["summary"].partition(": ")
        assert re.fullmatch(r"{{ \$labels\.(project|env|instance) }}", who), alert
        said = _filled_in(words)
        labels = {_without_figures(status.label) for status in _judged(name)} - {_SLOW}
        assert any(said.startswith(label) for label in labels), (alert, said, labels)


@pytest.mark.parametrize("name", ALERTED)
def test_descriptions_say_what_to_do_in_the_same_words(name):
    """X13: the sentence what to do is that of the status."""
    for alert, rule in _of(name).items():
        _, found, todo = rule["annotations"]["description"].partition(" To do: ")
        assert found, alert
        said = _filled_in(todo)
        remedies = [_without_figures(status.remedy) for status in _judged(name)]
        words = [_PARTS[name]] if name in _PARTS else remedies
        assert any(each in said for each in words), (alert, said, words)
        assert name not in _PARTS or name == "late" or all(_PARTS[name] in each for each in remedies)


def test_status_that_explains_why_messages_are_late_replaces_late():
    """X13: as `judge` decides. What is `stuck` has paused queues, which are never late for this alert."""
    found = re.search(r'ALERTS{alertstate="firing",status=~"([a-z_|]+)"}', alerts()["EvenlaneBacklogOld"]["expr"])
    assert found
    explain = set()
    for given, name, *_ in CASES:
        late = facts(**{**given, "waiting": mid(40, 720.0)})
        if late.state == "active" and "late" not in {status.name for status in judge(late)}:
            explain.add(name)
    assert explain - {"stuck"} == set(found[1].split("|"))


def test_docs_list_the_alert_of_each_status():
    """X13: docs/how-to/monitor.md."""
    text = (ROOT / "docs/how-to/monitor.md").read_text(encoding="utf-8")
    for name in ALERTED:
        (row,) = re.findall(rf"^\| `{name}` \|.*$", text, flags=re.MULTILINE)
        assert set(_of(name)) == set(re.findall(r"Evenlane\w+", re.sub(r"\(.*?\)", "", row))), name
