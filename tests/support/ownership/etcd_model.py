"""A model of etcd for ownership: owner keys, plan keys, leases, and the history of the owner keys."""

from dataclasses import dataclass, field

from evenlane.ring.membership.owner_keys import Owner


@dataclass
class Etcd:
    """Owner keys and plan keys. `history` has every change of an owner key."""

    revision: int = 1
    owners: dict = field(default_factory=dict)
    history: list = field(default_factory=list)  # (revision, partition, Owner or None)
    plans: dict = field(default_factory=dict)  # node -> (revision, generation, partitions)
    leases: set = field(default_factory=set)

    def put_plan(self, node, generation, partitions):
        self.revision += 1
        self.plans[node] = (self.revision, generation, partitions)

    def acquire(self, node, lease, partition, plan_revision):
        """Create an owner key, and return its epoch; 0: refused."""
        if partition in self.owners or self.plans[node][0] != plan_revision or lease not in self.leases:
            return 0
        self.revision += 1
        self._changed(partition, Owner(self.revision, lease))
        return self.revision

    def delete(self, partitions):
        self.revision += bool(partitions)
        for partition in partitions:
            self._changed(partition, None)

    def overwrite(self, partition, lease):
        self.revision += 1
        self._changed(partition, Owner(self.owners[partition].epoch, lease))

    def end(self, lease):
        self.leases.discard(lease)
        self.delete([p for p, owner in self.owners.items() if owner.lease == lease])

    def _changed(self, partition, owner):
        self.history.append((self.revision, partition, owner))
        if owner is None:
            del self.owners[partition]
        else:
            self.owners[partition] = owner

    def listing(self, revision):
        """All owner keys at a revision."""
        found = {partition: owner for at, partition, owner in self.history if at <= revision}
        return {partition: owner for partition, owner in found.items() if owner is not None}
