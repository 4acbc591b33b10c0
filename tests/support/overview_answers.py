"""Random answers of nodes about their tenants."""

from hypothesis import strategies as st

from evenlane.engine.admin.overview.messages import Band, NodeOverview, Rest, Row
from evenlane.engine.cluster.cluster_snapshot import ClusterSnapshot
from evenlane.engine.core.wire.reason_codes import REASONS
from evenlane.ring.membership.records import NodeRecord

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
PRIORITIES = ("high", "mid", "low")

_count = st.integers(0, 10**6)
_rate = st.one_of(st.none(), st.integers(0, 10**6).map(lambda thousandths: thousandths / 1000))
_seconds = st.one_of(st.none(), st.integers(0, 10**7).map(lambda thousandths: thousandths / 1000))


@st.composite
def bands(draw):
    never = draw(st.booleans())
    return Band(
        draw(_count), draw(_count), draw(_seconds), draw(_rate), draw(_rate),
        None if never else draw(_seconds), never,
        draw(st.dictionaries(st.sampled_from(REASONS), st.integers(1, 50), max_size=4)),
    )  # fmt: skip


three = st.lists(bands(), min_size=3, max_size=3)
names = st.sampled_from(["acme", "bolt", "coil", "dram"])


@st.composite
def rows(draw, project):
    if draw(st.booleans()):
        return Row(project, draw(three))
    return Row(project, draw(three), draw(st.integers(1, 4)), "active", draw(_count) + 1.0, draw(_rate))


@st.composite
def answers(draw):
    """Answers of up to three nodes."""
    reported = []
    for node in "abc"[: draw(st.integers(0, 3))]:
        projects = draw(st.sets(names))
        rest = draw(st.one_of(st.none(), st.builds(Rest, st.integers(0, 5), three)))
        reported.append(NodeOverview(node, [draw(rows(project)) for project in sorted(projects)], rest))
    return reported


def cluster(*nodes, **fields) -> ClusterSnapshot:
    """A snapshot of nodes that each own a part of 8 partitions. The first one leads."""
    known = {name: NodeRecord(host="host", version="1", at=1.0) for name in nodes}
    owners = {partition: nodes[partition % len(nodes)] for partition in range(8)} if nodes else {}
    made = ClusterSnapshot("online", PRIORITIES, 8, known, owners, nodes[0] if nodes else None)
    return made._replace(**fields)


def row(project, *, backlog=0, leaving=0.0, reasons=None, **fields) -> Row:
    """A row with messages only in the middle priority."""
    mid = Band(backlog, leaving=leaving, reasons=reasons or {}, oldest_s=1.0 if backlog else None)
    return Row(project, [Band(), mid, Band()], **fields)
