"""The troubles of a node, as its surfaces report them."""

from evenlane.engine.base.troubles import Troubles, sentences


def test_each_change_of_troubles_is_announced_once():
    """Only a trouble that stops all work makes the node not ready."""
    changes = []
    troubles = Troubles(lambda: changes.append(troubles.current()))
    troubles.begin("ownership", "serves 48 of 128 partitions")
    troubles.begin("ownership", "serves 48 of 128 partitions")
    assert "" == troubles.not_ready
    troubles.begin("store", "can't settle: the disk is full", ready=False)
    assert "it can't settle: the disk is full" == troubles.not_ready
    troubles.end("store")
    troubles.end("store")
    assert "" == troubles.not_ready
    both = {"ownership": "serves 48 of 128 partitions", "store": "can't settle: the disk is full"}
    assert [{"ownership": both["ownership"]}, both, {"ownership": both["ownership"]}] == changes


def test_sentences_name_the_node():
    """`why`, the page and `top` show the same sentences."""
    seen = {"b": {"store": "can't settle"}, "a": {"store": "can't read", "blocked": "has been blocked for 12 s"}}
    expected = ["node a has been blocked for 12 s", "node a can't read", "node b can't settle"]
    assert expected == [*sentences(seen)]
