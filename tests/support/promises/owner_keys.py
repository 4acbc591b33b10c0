"""Checks the changes of owner keys in etcd (promises O, Z1)."""

from collections.abc import Hashable, Mapping


class OwnerKeys:
    """An owner key is created only where there is none, under a create-revision higher than all before it. Until it is
    deleted it belongs to one owner: its create-revision and its lease stay.
    """

    def __init__(self) -> None:
        self._owners: dict[Hashable, tuple[int, int]] = {}
        self._newest: dict[Hashable, int] = {}

    def changed(self, key: Hashable, owner: tuple[int, int] | None) -> str:
        """Return what is wrong with the change, or "". `owner`: create-revision and lease, None if the key is gone."""
        before = self._owners.pop(key, None)
        if owner is None:
            return ""
        self._owners[key] = owner
        newest, self._newest[key] = self._newest.get(key, 0), owner[0]
        if before is not None and before != owner:
            return "is taken while another owner has it"
        if before is None and owner[0] <= newest:
            return f"is created at revision {owner[0]}, after one at {newest}"
        return ""

    def went_back(self, owners: Mapping[Hashable, tuple[int, int]]) -> None:
        """etcd was restored or wiped: it has these keys now, and its revisions begin again."""
        self._owners = dict(owners)
        self._newest = {key: owner[0] for key, owner in owners.items()}
