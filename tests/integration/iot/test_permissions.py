"""The device platform on servers that require logins, with the permissions that it prints."""

import asyncio
import os
import shutil
import sys
from contextlib import asynccontextmanager
from itertools import pairwise

import aiomqtt
import msgspec
import nats
import pytest

from evenlane.engine.admin.permissions.roles import Additions, make_role
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.runtime.embedded.child import guard
from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.ring.hashing import partition_of
from examples.iot.database import connect
from examples.iot.messages import Answer
from examples.iot.permissions import permissions
from examples.iot.settings import PlatformSettings
from examples.iot.subjects import Subjects, to_topic
from tests.integration.iot.conftest import PARTITIONS
from tests.support.permissions.guarded import ENV, PASSWORD, ROOT, GuardedServers
from tests.support.until import until

pytestmark = pytest.mark.real
SUBJECTS = Subjects()


def role(name):
    kind, *options = permissions(name, SUBJECTS)
    given = {flag: [] for flag in ("--publish", "--subscribe", "--name")}
    for flag, value in pairwise(options):
        if flag in given:
            given[flag].append(value)
    additions = Additions(
        tuple(given["--publish"]),
        tuple(given["--subscribe"]),
        answers="--answer" in options,
        topics="--topics" in options,
    )
    return make_role(kind, ENV, (), *(given["--name"] or [None]), additions)


def subject(name, project):
    return SUBJECTS.format(name, partition_of(project, 0, 1, PARTITIONS, "hashed"), project)


@pytest.fixture
async def servers(tmp_path):
    """Logins for a gateway, a node, and a device of one project."""
    port = free_port()
    device = f'{{ publish: "{subject("data", "acme")}", subscribe: {{ deny: ">" }} }}'
    made = GuardedServers(
        tmp_path,
        more=[role("gateway"), role("node")],
        users=[f'{{ user: device, password: "{PASSWORD}", permissions: {device} }}'],
        mqtt_port=port,
    )
    await made.start()
    etcd = connections.etcd(made.settings("node"))
    await agree_cluster_config(etcd, ENV, {"partitions": PARTITIONS})
    await etcd.close()
    yield made
    await made.stop()


@asynccontextmanager
async def process(servers, user, database, *command):
    """A process that logs in as this user; the block begins when it is ready."""
    settings = servers.settings(user)
    names = ("env", "nats_user", "nats_password_file", "nats_inbox", "etcd_user", "etcd_password_file")
    own = {f"EVENLANE_{name.upper()}": str(getattr(settings, name)) for name in names}
    own |= {"EVENLANE_NATS": servers.nats.url, "EVENLANE_ETCD": servers.etcd.endpoint, "EVENLANE_STORAGE": "memory"}
    own |= {"IOT_MQTT": servers.nats.mqtt, "IOT_DATABASE": str(database)}
    running = await asyncio.create_subprocess_exec(
        *guard(), *command, env=os.environ | own, stdout=asyncio.subprocess.PIPE
    )
    while not (line := await running.stdout.readline()).startswith(b"ready"):
        assert line, f"{user} has ended"
    try:
        yield
    finally:
        running.terminate()
        await running.communicate()


@asynccontextmanager
async def platform(servers, folder):
    node = (shutil.which("evenlane"), "run", "--handler", "examples.iot.handlers:app", "--node", "node-1")
    gateway = (sys.executable, "-m", "examples.iot", "gateway", "--name", "gateway-1")
    database = folder / "iot.db"
    async with process(servers, "node", database, *node), process(servers, "gateway", database, *gateway):
        yield


def device(servers):
    host, port = PlatformSettings(mqtt=servers.nats.mqtt).mqtt_address
    return aiomqtt.Client(host, port, username="device", password=PASSWORD)


@asynccontextmanager
async def client(servers, user):
    """nats-py as this user, and what the server denies it."""
    denied = []

    async def on_error(error):
        denied.append(str(error))

    connection = await nats.connect(servers.nats.url, error_cb=on_error, **servers.login(user))
    yield connection, denied
    await connection.close()


async def test_gateway_and_node_do_their_whole_job(servers, tmp_path):
    """P7, S1: data by MQTT and by NATS is stored, and a close is answered. Nobody is denied anything but a device that
    sends for another project.
    """

    def stored():
        connection = connect(tmp_path / "iot.db")
        try:
            return {body for (body,) in connection.execute("SELECT body FROM data")}
        finally:
            connection.close()

    async with platform(servers, tmp_path), client(servers, ROOT) as (operator, _):
        async with device(servers) as sender:
            await sender.publish(to_topic(subject("data", "acme")), b"by mqtt", qos=1)
        receipt = await operator.jetstream().publish(subject("data", "acme"), b"by nats")
        assert receipt.stream.startswith(f"LANES_{ENV}_")
        await until(lambda: {b"by mqtt", b"by nats"} == stored())
        answers = await operator.subscribe(subject("response", "acme"))
        await operator.jetstream().publish(subject("close", "acme"), b"", stream="IOT")
        assert "closed" == msgspec.json.decode((await answers.next_msg(60)).data, type=Answer).state
        assert 0 == servers.count_in_nats_log(" Violation")
        async with device(servers) as sender:
            await sender.publish(to_topic(subject("data", "other")), b"for another project", qos=1)
        await until(lambda: servers.count_in_nats_log(" Violation"))
        async with device(servers) as sender:
            await sender.publish(to_topic(subject("data", "acme")), b"the last", qos=1)
    assert {b"by mqtt", b"by nats"} == stored()


FORBIDDEN = [
    *(f"$JS.API.STREAM.{verb}.{stream}" for verb in ("PURGE", "DELETE", "MSG.DELETE", "UPDATE")
      for stream in ("$MQTT_msgs", "IOT", f"LANES_{ENV}_0")),
    f"$JS.API.STREAM.MSG.GET.LANES_{ENV}_0", f"$JS.API.DIRECT.GET.LANES_{ENV}_0", "$JS.API.STREAM.MSG.GET.IOT",
    f"$JS.API.CONSUMER.CREATE.LANES_{ENV}_0", f"$JS.API.CONSUMER.DURABLE.CREATE.LANES_{ENV}_0.gateways",
    f"$JS.API.CONSUMER.MSG.NEXT.LANES_{ENV}_0.x", "$JS.API.CONSUMER.DELETE.$MQTT_msgs.gateways",
    "$JS.API.CONSUMER.CREATE.$MQTT_msgs.mine", "$JS.API.STREAM.CREATE.MINE", f"dead.{ENV}.acme",
    f"settled.{ENV}.lanes.0", f"shares.{ENV}.all", f"ask.{ENV}.drop.acme", f"meter.{ENV}.node", "_INBOX.node.x",
    subject("data", "acme"), subject("close", "acme"),
]  # fmt: skip


async def test_gateway_reads_and_erases_nothing_else(servers):
    """P7, S1: it takes the devices' messages, and reaches no message that is in Evenlane."""
    async with client(servers, "gateway") as (gateway, denied):
        for forbidden in FORBIDDEN:
            before, _ = len(denied), await gateway.publish(forbidden, b"{}")
            await gateway.flush()
            await until(lambda: len(denied) > before, what=forbidden)  # noqa: B023 - called at once
        for pattern in (">", "_INBOX.>", "_INBOX.node.>", f"lanes.{ENV}.>", f"dead.{ENV}.>", "$MQTT.>", "$JS.API.>"):
            before, _ = len(denied), await gateway.subscribe(pattern)
            await gateway.flush()
            await until(lambda: len(denied) > before, what=pattern)  # noqa: B023 - called at once
