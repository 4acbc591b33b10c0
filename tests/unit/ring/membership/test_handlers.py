"""Nodes whose handlers differ are named."""

from structlog.testing import capture_logs

from evenlane.engine.control.leader.handler_differences import HandlerDifferences
from evenlane.ring.membership.handlers import explain_differences
from evenlane.ring.membership.records import NodeRecord


def nodes(**handlers):
    return {name: NodeRecord(handlers=text) for name, text in handlers.items()}


def test_nodes_with_the_same_handlers_do_not_differ():
    """A node of an older release doesn't say what it handles."""
    assert None is explain_differences(nodes(a="* -> shop:bill", b="* -> shop:bill", c=""))
    assert None is explain_differences({})


def test_groups_of_nodes_are_named():
    sentence = explain_differences(nodes(a="* -> shop:bill", b="* -> shop:send", c="* -> shop:bill"))
    assert (
        "the nodes' handlers differ: nodes a, c by * -> shop:bill; node b by * -> shop:send; a message goes to the"
        " handlers of the node that owns its partition"
    ) == sentence


def test_sentence_is_bounded():
    many = {f"n{number}": f"p{number} -> {'x' * 400}" for number in range(1_000)}
    assert len(explain_differences(nodes(**many))) < 1_000


def test_each_difference_is_logged_once():
    differences = HandlerDifferences()
    with capture_logs() as logs:
        differences.update(nodes(a="one"), (), whole=True)
        for _ in range(3):
            differences.update(nodes(b="two"), (), whole=False)
        differences.update({}, ("b",), whole=False)
        differences.update(nodes(b="two"), (), whole=False)
        differences.update(nodes(a="one"), (), whole=True)
    assert ["the nodes' handlers differ"] * 2 == [line["event"] for line in logs]
