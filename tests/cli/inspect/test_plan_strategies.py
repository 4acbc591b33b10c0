"""`evenlane plan simulate` with strategies of another package that have a defect."""

import pytest

from evenlane.ring.placement.strategy import GROUP

MODULE = """
def swap(request):
    owners = [request.present.get(number, request.nodes[0].name) for number in range(len(request.loads))]
    alive = {node.name for node in request.nodes}
    owners = [owner if owner in alive else request.nodes[0].name for owner in owners]
    owners[0] = next(node.name for node in request.nodes if node.name != owners[0])
    return owners


def swap_at_rest(request):
    if request.gather_moves:
        return swap(request)
    alive = {node.name for node in request.nodes}
    owners = [request.present.get(number, request.nodes[0].name) for number in range(len(request.loads))]
    return [owner if owner in alive else request.nodes[0].name for owner in owners]
"""


@pytest.fixture
def restless(tmp_path, monkeypatch):
    """A package with the strategies `swap` and `swap_at_rest`."""
    folder = tmp_path / "restless-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: restless\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        f"[{GROUP}]\nswap = restless_strategies:swap\nswap-at-rest = restless_strategies:swap_at_rest\n"
    )
    (tmp_path / "restless_strategies.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ("swap", "the placement strategy moves partitions (1) although nothing has changed"),
        ("swap-at-rest", "gathering hasn't ended after 24 steps"),
    ],
)
@pytest.mark.usefixtures("restless")
def test_simulation_ends_with_a_strategy_that_moves_partitions_for_ever(evenlane, strategy, sentence):
    """C2: and names the strategy."""
    code, out, err = evenlane(
        "plan", "simulate", "--nodes", "6", "--projects", "10", "--restart", "--strategy", strategy
    )
    assert (True, "", f"evenlane: --strategy {strategy} has a defect: {sentence}\n") == (code > 0, out, err)
