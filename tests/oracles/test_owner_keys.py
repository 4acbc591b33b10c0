"""The checker of owner keys itself."""

from tests.oracles.owner_keys import OwnerKeys


def test_one_owner_after_another_is_right():
    keys = OwnerKeys()
    changes = [(5, 1), (5, 1), None, (8, 2), None, (9, 1)]
    assert [""] * 6 == [keys.changed("owners/0", owner) for owner in changes]


def test_a_key_that_changes_hands_without_being_gone():
    """O."""
    for other in ((8, 2), (5, 2), (8, 1)):
        keys = OwnerKeys()
        keys.changed(0, (5, 1))
        assert "is taken while it is another's" == keys.changed(0, other)


def test_a_key_that_is_made_under_an_older_revision():
    """O: but for an etcd that went back."""
    keys = OwnerKeys()
    keys.changed(0, (5, 1))
    keys.changed(0, None)
    assert "is made at revision 5, after one at 5" == keys.changed(0, (5, 2))
    keys.went_back({})
    assert "" == keys.changed(0, (2, 3))
