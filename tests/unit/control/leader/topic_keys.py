"""Topic keys in etcd as a test writes and reads them."""

from evenlane.quota.topics.topic import decode_accepted
from tests.support.until import until

ROOT = "/evenlane/online/"


async def accepted(coordination, project):
    item = await coordination.get(ROOT + "accepted/" + project)
    return None if item is None else decode_accepted(item.value)


async def in_effect(coordination, project, qps):
    """Wait until the project's accepted topic has this rate."""

    async def check():
        now = await accepted(coordination, project)
        return now if now is not None and now.topic.qps == qps else None

    return await until(check)


async def deleted(coordination, project):
    """Wait until the project's accepted topic is marked as deleted."""

    async def check():
        now = await accepted(coordination, project)
        return now if now.deleted else None

    return await until(check)


async def put_spec(coordination, project, raw):
    return await coordination.put(ROOT + "topics/" + project, raw)
