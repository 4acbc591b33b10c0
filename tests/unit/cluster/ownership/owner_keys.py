"""Owner keys in etcd, as tests read them."""

from evenlane.ring.membership.records import OwnerRecord, decode
from tests.support.membership_cluster import key


async def owner_epoch(cluster, partition):
    """Return the epoch in the owner key, 0 if its value is invalid."""
    item = await cluster.client.get(key("owners", partition))
    try:
        return decode(OwnerRecord, item.key, item.value).epoch
    except ValueError:
        return 0
