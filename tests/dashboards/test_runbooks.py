"""The runbooks have a section for each alert, with existing commands and panels."""

import re

import pytest

from evenlane.engine.cli.main import root
from tests.dashboards.files import ROOT, RUNBOOKS, alerts, dashboards, panels, rules

TRIED = [ROOT / "tests/ledger/test_runbooks.py", ROOT / "tests/ledger/test_runbooks_nodes.py"]
DISK = "tests/ledger/test_faults_disk.py"
ETCD_WENT_BACK = "etcd was wiped or restored"
ELSEWHERE = {
    "EvenlaneNoHandler": ("tests/integration/app/test_application.py::test_nodes_whose_handlers_differ_are_named",),
    "EvenlaneEndpointPauses": (
        "tests/integration/node/push/test_cluster.py::test_messages_reach_endpoint_through_restart",
    ),
    "EvenlaneSubscriptionWithoutNode": (
        "tests/cli/subscriptions/test_subscriptions.py::test_leader_counts_the_nodes_of_each",
    ),
    "EvenlaneSubscriptionUnfinished": (
        "tests/cli/subscriptions/test_subscriptions.py::test_broken_off_commands_are_completed",
    ),
    "EvenlaneStoreCantWrite": (f"{DISK}::test_full_disk_is_reported_and_loses_nothing",),
    ETCD_WENT_BACK: (
        "tests/ledger/test_cluster_etcd_back.py::test_nodes_survive_a_wiped_etcd",
        "tests/ledger/test_cluster_etcd_back.py::test_nodes_survive_an_older_backup_of_etcd",
        "tests/cli/topics/test_export.py::test_apply_restores_an_export",
    ),
}
MENTIONED = {"evenlane run --node", "evenlane why", "evenlane backlog purge", "evenlane backlog cancel"}
PARTS = ("**Means:**", "**Look:**", "**Do", "**Don't**")


def _sections():
    """The texts by heading: an alert, or an event."""
    pieces = re.split(r"^## (.+)$", RUNBOOKS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def test_alerts_and_runbooks_match():
    assert sorted([*alerts(), ETCD_WENT_BACK]) == sorted(_sections())


@pytest.mark.parametrize("name", sorted(alerts()))
def test_runbook_has_all_parts_in_order(name):
    text = _sections()[name]
    places = [text.find(f"\n{part}") for part in PARTS]
    assert -1 not in places, PARTS[places.index(-1)]
    assert places == sorted(places)


def test_commands_in_runbooks_exist_with_their_options():
    found = re.findall(r"`evenlane ([^`]+)`", RUNBOOKS.read_text(encoding="utf-8"))
    assert len(found) > 30
    ours = root()
    for line in found:
        command, options = ours, []
        for word in line.split():
            if word.startswith("--"):
                options.append(word)
            elif not options and word in getattr(command, "commands", {}):
                command = command.commands[word]
        assert not hasattr(command, "commands") or command.name == "plan", line
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert set(options) <= known, line


def test_runbooks_and_their_commands_are_tried_on_real_servers():
    """Except commands that are only mentioned."""
    text = "".join(path.read_text(encoding="utf-8") for path in TRIED)
    tried = {*re.findall(r'Runbook\(world, "(\w+)"\)', text), *ELSEWHERE}
    assert sorted([*alerts(), ETCD_WENT_BACK]) == sorted(tried)
    for test in (test for tests in ELSEWHERE.values() for test in tests):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
    commands = {
        line
        for name, section in _sections().items()
        if name not in ELSEWHERE
        for line in re.findall(r"`((?:evenlane|etcdctl|curl) [^`]+)`", section.replace("\n", " "))
    }
    assert set() == {line for line in commands if f'"{line}"' not in text} - MENTIONED


def test_panels_in_runbooks_exist():
    """A panel is quoted after its dashboard, as in *Fleet*, "Loop lag"."""
    text = RUNBOOKS.read_text(encoding="utf-8")
    titles = {panel["title"] for each in dashboards().values() for panel in panels(each)}
    named = {title.rstrip(".,") for title in re.findall(r'"([A-Z][^"]+)"', text)}
    assert len(named) > 5
    assert set() == named - titles


def test_targets_in_runbooks_equal_those_of_the_rules():
    targets = [rule["expr"] for rule in rules() if rule.get("record", "").startswith("priority:")]
    text = _sections()["EvenlaneBacklogOld"]
    for expr in targets:
        seconds = re.fullmatch(r"vector\((\d+)\)", expr)[1]
        assert f"{seconds} s for" in text
