"""Tests of the checker of owner keys."""

from tests.support.promises.owner_keys import OwnerKeys


def test_successive_owners_pass():
    keys = OwnerKeys()
    changes = [(5, 1), (5, 1), None, (8, 2), None, (9, 1)]
    assert [""] * 6 == [keys.changed("owners/0", owner) for owner in changes]


def test_key_taken_from_its_owner_is_found():
    """O."""
    for other in ((8, 2), (5, 2), (8, 1)):
        keys = OwnerKeys()
        keys.changed(0, (5, 1))
        assert "is taken while another owner has it" == keys.changed(0, other)


def test_key_created_at_an_older_revision_is_found():
    """O: unless etcd went back."""
    keys = OwnerKeys()
    keys.changed(0, (5, 1))
    keys.changed(0, None)
    assert "is created at revision 5, after one at 5" == keys.changed(0, (5, 2))
    keys.went_back({})
    assert "" == keys.changed(0, (2, 3))
