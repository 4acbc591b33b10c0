"""What keeps a node from its work, as its surfaces report it."""

from evenlane.engine.base.troubles import Troubles, sentences


def test_a_trouble_lasts_from_its_beginning_to_its_end():
    """Issue 25: each change is announced once; only what stops all work makes the node not ready."""
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
    """Issue 25: the same words in `why`, on the page and in `top`."""
    seen = {"b": {"store": "can't settle"}, "a": {"store": "can't read", "blocked": "has been blocked for 12 s"}}
    expected = ["node a has been blocked for 12 s", "node a can't read", "node b can't settle"]
    assert expected == [*sentences(seen)]
