"""Where the code of the release before comes from."""

import pytest

from tests.ledger.released import NoHistory, release_before


@pytest.mark.source
def test_release_before_needs_the_history_and_says_so(tmp_path):
    """U1: a source archive has none; the tests of releases are skipped with this sentence, and only there."""
    with pytest.raises(
        NoHistory, match=r"^commit b909c0c887c0, the release before, isn't in a git history of .*: clone"
    ):
        release_before(tmp_path / "code", tmp_path)
    assert [] == [*tmp_path.iterdir()]
