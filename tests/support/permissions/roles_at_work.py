"""An environment whose servers require permissions, and what its users do there."""

from contextlib import asynccontextmanager

import nats

from evenlane import Reject, Topics
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from tests.support.node.running import running_engine
from tests.support.permissions.guarded import ENV, ROOT

PARTITIONS = 4


async def begin(servers):
    """Start the servers, and create the environment: any test may be the first on them."""
    await servers.start()
    etcd = connections.etcd(servers.settings("node"))
    await agree_cluster_config(etcd, ENV, {"partitions": PARTITIONS})
    await etcd.close()


def node(servers, handle, user="node"):
    return running_engine(
        servers.settings(user, partitions=PARTITIONS, meter_interval=0.2, settle_interval=0.01), handle
    )


async def set_topics(servers, **fields):
    async with Topics(settings=servers.settings("operator"), by="ann") as topics:
        for project, own in fields.items():
            await topics.set(project, **own)


@asynccontextmanager
async def connected(servers, user):
    """nats-py as this user, and what the server denies it."""
    denied = []

    async def on_error(error):
        denied.append(str(error))

    client = await nats.connect(servers.nats.url, error_cb=on_error, **servers.login(user))
    try:
        yield client, denied
    finally:
        await client.close()


async def stored(servers, subject):
    """How many messages the streams have on this subject."""
    async with connected(servers, ROOT) as (client, _):
        stream = client.jetstream()
        infos = [await stream.stream_info(each.config.name, ">") for each in await stream.streams_info()]
        return sum((info.state.subjects or {}).get(subject, 0) for info in infos)


def handler(handled):
    async def handle(message):
        if message.body == b"bad":
            raise Reject("bad")
        handled.append((message.project, message.body))

    return handle
