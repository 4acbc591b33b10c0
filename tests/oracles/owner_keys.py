"""What must hold of owner keys (O, Z1): the simulation and the ledger tests tell each change of one."""

from collections.abc import Hashable, Mapping


class OwnerKeys:
    """A key is made only where there is none, under a create-revision higher than all before it. As long as it is
    there it is one owner's: its create-revision and its lease stay.
    """

    def __init__(self) -> None:
        self._owners: dict[Hashable, tuple[int, int]] = {}
        self._newest: dict[Hashable, int] = {}

    def changed(self, key: Hashable, owner: tuple[int, int] | None) -> str:
        """`owner` is create-revision and lease, None if the key is gone. Returns what is wrong, empty if nothing is."""
        before = self._owners.pop(key, None)
        if owner is None:
            return ""
        self._owners[key] = owner
        newest, self._newest[key] = self._newest.get(key, 0), owner[0]
        if before is not None and before != owner:
            return "is taken while it is another's"
        if before is None and owner[0] <= newest:
            return f"is made at revision {owner[0]}, after one at {newest}"
        return ""

    def went_back(self, owners: Mapping[Hashable, tuple[int, int]]) -> None:
        """etcd was restored or wiped: these keys are what it has now, and its revisions begin again."""
        self._owners = dict(owners)
        self._newest = {key: owner[0] for key, owner in owners.items()}
