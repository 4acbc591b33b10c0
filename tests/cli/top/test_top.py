"""`evenlane top` without servers: selection, formatting, wrong use."""

import pytest

from evenlane.engine.admin.overview.document import document
from evenlane.engine.admin.overview.messages import Band, NodeOverview, ProcessVitals, Rest, Row
from evenlane.engine.cli.top import formatting
from evenlane.engine.cli.top.plain import page
from evenlane.engine.cli.top.table import NODES, TENANTS, rest, table
from evenlane.engine.cli.top.view_state import ViewState, lines, narrow, tenants, whole
from evenlane.engine.cli.top.why_pane import why_lines
from evenlane.engine.core.status.status import Status
from tests.support.overview_answers import NOW, cluster


def band(backlog=0, **fields):
    fields = {"oldest_s": 1.0 if backlog else None, "handled": fields.get("leaving", 0.0), **fields}
    return Band(backlog, **fields)


ACME = Row(
    "acme",
    [
        band(3, leaving=9.96, arriving=10.0, reasons={"quota": 1}, gone_s=12.3, oldest_s=0.42),
        band(40, leaving=None, arriving=None, reasons={"higher_priority": 1}, gone_s=None, oldest_s=75.0),
        Band(),
    ],
    2, "active", 100.0, 60.0,
)  # fmt: skip
PAUSED = Row("globex", [Band(), band(7, reasons={"paused": 1}, gone_s=None, never=True, oldest_s=4_000.0), Band()])
PAUSED = Row(PAUSED.project, PAUSED.bands, 3, "paused", 20.0, 20.0)
IDLE = Row("initech", [Band(), Band(), Band()], 4, "draining", 5.0, 5.0)


def shown(*rows, rest=None, nodes="a", **fields):
    reported = NodeOverview("a", [*rows], rest, ProcessVitals(3, 64, 6.8, 0.0, 0.004))
    return document(cluster(*nodes, **fields), [reported], NOW)


EXAMPLE = shown(ACME, PAUSED, IDLE, rest=Rest(4_900, [band(5, in_flight=1, leaving=2.0), Band(), Band()]))


def status(name, label, sentence, remedy=""):
    return Status(name, "warning", label, sentence, remedy).describe()


# ---- selection


def names(choice, document=EXAMPLE):
    return [tenant["project"] for tenant in tenants(document, choice)]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ViewState(), ["acme", "globex", "initech"]),
        (ViewState(reverse=True), ["initech", "globex", "acme"]),
        (ViewState(sort="name", reverse=True), ["initech", "globex", "acme"]),
        (ViewState(sort="oldest"), ["globex", "acme", "initech"]),
        (ViewState(sort="rate"), ["globex", "initech", "acme"]),  # the rate of acme is unknown
        (ViewState(sort="rate", priority="high"), ["acme"]),
        (ViewState(sort="gone"), ["globex", "initech", "acme"]),
        (ViewState(sort="quota"), ["acme", "globex", "initech"]),
        (ViewState(project="LO"), ["globex"]),
        (ViewState(project="x."), []),
        (ViewState(limit=2), ["acme", "globex"]),
        (ViewState(priority="low"), []),
        (ViewState(priority="mid", sort="oldest"), ["globex", "acme"]),
    ],
)
def test_tenants_are_filtered_and_sorted(choice, expected):
    """Unknown figures come last."""
    assert expected == names(choice)


def test_tenant_has_a_line_per_active_priority():
    """At least one line; with totals, one for all priorities."""
    found = [(line.tenant["project"], line.figures["priority"], line.first) for line in lines(EXAMPLE, ViewState())]
    assert [
        ("acme", "high", True), ("acme", "mid", False), ("globex", "mid", True), ("initech", "all", True)
    ] == found  # fmt: skip
    assert ["all"] * 3 == [line.figures["priority"] for line in lines(EXAMPLE, ViewState(totals=True))]
    assert ["high"] == [line.figures["priority"] for line in lines(EXAMPLE, ViewState(priority="high"))]


@pytest.mark.parametrize(
    ("bands", "gone", "never"),
    [
        ([band(1, gone_s=3.0), band(2, gone_s=7.0), Band()], 7.0, False),
        ([band(1, gone_s=3.0), band(2, gone_s=None), Band()], None, False),
        ([band(1, gone_s=3.0), band(2, gone_s=None, never=True), Band()], None, True),
    ],
)
def test_tenant_is_empty_when_its_last_priority_is(bands, gone, never):
    (tenant,) = shown(Row("acme", bands))["tenants"]
    assert (gone, never) == (whole(tenant)["gone_in_seconds"], whole(tenant)["never_gone"])


def test_json_has_the_selected_tenants():
    """Its form and its totals don't depend on the selection."""
    reported = narrow(EXAMPLE, ViewState(project="acme", priority="mid"))
    (tenant,) = reported["tenants"]
    assert ["mid"] == [part["priority"] for part in tenant["priorities"]]
    assert {**EXAMPLE, "tenants": reported["tenants"]} == reported
    assert EXAMPLE == narrow(EXAMPLE, ViewState())


# ---- formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "?"),
        (0.0, "0"),
        (0.04, "0.04"),
        (0.5, "0.5"),
        (7.0, "7"),
        (7.46, "7.5"),
        (99.9, "99.9"),
        (1234.5, "1,234"),
    ],
)
def test_rate_is_formatted(value, text):
    assert text == formatting.rate(value)


@pytest.mark.parametrize(
    ("state", "qps", "now", "text"),
    [
        ("active", 100.0, 100.0, "100"), ("active", 100.0, 60.0, "60/100"), ("active", 100.0, None, "100"),
        ("paused", 100.0, 60.0, "paused"), ("draining", 5.0, 5.0, "5 draining"), (None, None, None, "no topic"),
        ("active", 0.01, 0.01, "0.01"),
    ],
)  # fmt: skip
def test_quota_is_formatted(state, qps, now, text):
    assert text == formatting.quota({"state": state, "qps": qps, "quota_now": now, "deleted": False})


@pytest.mark.parametrize(("state", "text"), [("paused", "deleted"), ("draining", "5 draining")])
def test_deleted_topic_is_not_called_paused(state, text):
    """X13: as on the page: resuming it isn't what ends that. One that drains does so to its end."""
    assert text == formatting.quota({"state": state, "qps": 5.0, "quota_now": 5.0, "deleted": True})


def test_page_of_plain_lines(golden):
    golden.check("\n".join(page(EXAMPLE, ViewState())) + "\n")


def test_page_without_nodes(golden):
    golden.check("\n".join(page(document(cluster(), [], NOW), ViewState())) + "\n")


def test_page_summarises_hidden_tenants():
    first, *_ = [line for line in page(EXAMPLE, ViewState(limit=1)) if "more" in line]
    assert (
        "2 more of these; 4,900 less busy projects counted together: 5 wait, 1 in flight, 2/s handled, 0/s failed"
        == first
    )
    assert "no project matches" in [*page(EXAMPLE, ViewState(project="nobody"))]
    assert "" == rest(shown(ACME), lines(shown(ACME), ViewState()), 1)


@pytest.mark.parametrize("room", [200, 120, 100, 80, 60, 40])
def test_table_fits_the_width(room):
    """A narrow terminal loses the less important columns first, then ends of names."""
    long = Row("a-project-with-quite-a-long-name-" + "x" * 30, ACME.bands, 2, "active", 100.0, 60.0)
    made = table(TENANTS, lines(shown(long, PAUSED), ViewState()), room)
    needed = {"PROJECT", "STATUS", "BACKLOG", "OLDEST", "FAILED/S"}
    assert needed <= {column.name for _, column in made.columns}
    assert {line[: len("a-proje")] for line in made.lines[:1]} == {"a-proje"}
    if room >= 60:
        assert all(len(line) <= room for line in (made.header, *made.lines))
    for start, column in made.columns:
        assert made.header[max(0, start) :].lstrip().startswith(column.name)
    if room == 200:
        assert len(TENANTS) == len(made.columns)


def test_silent_node_has_no_figures():
    made = table(NODES, shown(nodes=["a", "b"])["nodes"])
    (silent,) = [line for line in made.lines if line.startswith("b")]
    assert ["b", "4", "?", "?", "?", "?", "?", "?", "0%", "?", "?", "?", "host"] == silent.split()


def test_why_pane_shows_active_priorities(golden):
    part = {"waiting": 0, "oldest_seconds": None, "in_flight": 0, "delayed": 0, "reasons": []}
    waits = {"reason": "quota", "groups": 2, "messages": 7, "sentence": "the topic's 5 msg/s are used up"}
    reported = {
        "project": "acme", "backlog": 7, "oldest_seconds": 5.2, "in_flight": 1, "notes": ["node a: it lags"],
        "status": status("over_quota", "over quota 3 x", "it offers 3 x its quota", "its producer slows down"),
        "also": [status("expiring", "expiring 10 %", "1/s expire", "its producer slows down")],
        "priorities": [
            {"priority": "high", **part},
            {"priority": "mid", **part, "waiting": 7, "oldest_seconds": 5.2, "delayed": 2, "reasons": [waits]},
        ],
        "rates": {"sentence": "0/s arrive"},
        "forecast": {"sentence": "never", "resumed_sentence": "once it is resumed, gone in 2s"},
    }  # fmt: skip
    golden.check("\n".join(why_lines(reported)) + "\n")


# ---- wrong use


WRONG = r"""
top --sort size
top --interval 0.1s
top --interval soon
top --limit 0
top --count 0
top --count many
"""


def test_wrong_use_is_one_sentence(transcript):
    transcript.fail(WRONG)
    transcript.check()
