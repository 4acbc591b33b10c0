"""Whether the nodes have carried out a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.ring.membership.records import OwnerRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.ring.coordination.ports import Coordination


async def is_carried_out(
    coordination: Coordination, cluster: str, records: RecordReader, planned: Mapping[int, str]
) -> bool:
    """Whether each partition is served by its node in `planned`, and no handler runs under a former owner. Raises
    CoordinationError.
    """
    if (await coordination.list(names.key(cluster, "held", ""))).items:
        return False
    prefix = names.key(cluster, "owners", "")
    serving: dict[str, str] = {}
    for item in (await coordination.list(prefix)).items:
        owner = records.read(OwnerRecord, item.key, item.value)
        if owner is not None and owner.epoch:
            serving[item.key.removeprefix(prefix)] = owner.id
    return serving == {str(partition): name for partition, name in planned.items()}
