"""The device platform on servers that require logins, with the permissions that it prints."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import aiomqtt
import msgspec
import nats
import nats.errors
import pytest

from evenlane.engine.admin.permissions.roles import Additions, make_role
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.runtime.embedded.child import guard
from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.ring.hashing import partition_of
from examples.iot.database import connect
from examples.iot.ingress import CONTROL
from examples.iot.messages import Answer
from examples.iot.permissions import permissions
from examples.iot.settings import PlatformSettings
from examples.iot.subjects import Subjects, to_topic
from tests.integration.iot.conftest import PARTITIONS
from tests.support.permissions.guarded import ENV, PASSWORD, ROOT, GuardedServers
from tests.support.until import until

pytestmark = pytest.mark.real
SUBJECTS = Subjects()
BY_QOS = {b"once at most": 0, b"once at least": 1, b"once": 2}


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
    """Logins for a gateway, a node, and for one project: a device, and a sender by NATS."""
    port = free_port()
    data = subject("data", "acme")
    by_mqtt = f'permissions: {{ publish: "{data}", subscribe: {{ deny: ">" }} }}, allowed_connection_types: ["MQTT"]'
    by_nats = f'permissions: {{ publish: "{data}", subscribe: "_INBOX.senders.sender.>" }}'
    made = GuardedServers(
        tmp_path,
        more=[role("gateway"), role("node")],
        users=[
            f'{{ user: device, password: "{PASSWORD}", {by_mqtt} }}',
            f'{{ user: sender, password: "{PASSWORD}", {by_nats} }}',
        ],
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
    node = (
        str(Path(sys.executable).with_name("evenlane")),
        "run",
        "--handler",
        "examples.iot.handlers:app",
        "--node",
        "node-1",
    )
    gateway = (sys.executable, "-m", "examples.iot", "gateway", "--name", "gateway-1")
    database = folder / "iot.db"
    async with process(servers, "node", database, *node), process(servers, "gateway", database, *gateway):
        yield


def device(servers):
    host, port = PlatformSettings(mqtt=servers.nats.mqtt).mqtt_address
    return aiomqtt.Client(host, port, username="device", password=PASSWORD)


def sender(servers):
    """A program that sends data by NATS."""
    return client(servers, "sender", inbox_prefix="_INBOX.senders.sender")


def stored(folder):
    connection = connect(folder / "iot.db")
    try:
        return {body for (body,) in connection.execute("SELECT body FROM data")}
    finally:
        connection.close()


@asynccontextmanager
async def client(servers, user, **options):
    """nats-py as this user, and what the server denies it."""
    denied = []

    async def on_error(error):
        denied.append(str(error))

    connection = await nats.connect(servers.nats.url, error_cb=on_error, **servers.login(user) | options)
    yield connection, denied
    await connection.close()


async def test_gateway_and_node_do_their_whole_job(servers, tmp_path):
    """P7, S1: data by MQTT and by NATS is stored, and a close is answered. Nobody is denied anything but a device that
    sends for another project.
    """

    async with platform(servers, tmp_path), client(servers, ROOT) as (operator, _), sender(servers) as (program, _):
        async with device(servers) as mqtt:
            await mqtt.publish(to_topic(subject("data", "acme")), b"by mqtt", qos=1)
        receipt = await program.jetstream().publish(subject("data", "acme"), b"by nats")
        assert receipt.stream.startswith(f"LANES_{ENV}_")
        await until(lambda: {b"by mqtt", b"by nats"} == stored(tmp_path))
        answers = await operator.subscribe(subject("response", "acme"))
        await operator.jetstream().publish(subject("close", "acme"), b"", stream="IOT")
        assert "closed" == msgspec.json.decode((await answers.next_msg(60)).data, type=Answer).state
        assert 0 == servers.count_in_nats_log(" Violation")
        async with device(servers) as mqtt:
            await mqtt.publish(to_topic(subject("data", "other")), b"for another project", qos=1)
        await until(lambda: servers.count_in_nats_log(" Violation"))
        async with device(servers) as mqtt:
            await mqtt.publish(to_topic(subject("data", "acme")), b"the last", qos=1)
    assert {b"by mqtt", b"by nats"} == stored(tmp_path)


async def test_sender_makes_the_gateway_publish_nowhere_else(servers, tmp_path):
    """P7, S1: whoever sends data by NATS chooses the reply subject. The gateway answers on those of senders alone."""
    data, landed = subject("data", "acme"), []

    async def on_landed(message):
        landed.append(message.subject)

    async with platform(servers, tmp_path), client(servers, ROOT) as (root, _), sender(servers) as (program, _):
        for reply in REPLIES:
            await root.subscribe(reply, cb=on_landed)
        await root.flush()
        for reply in REPLIES:
            await program.publish(data, reply.encode(), reply=reply)
        await until(lambda: {each.encode() for each in REPLIES} == stored(tmp_path))
        await program.jetstream().publish(data, b"answered")
        await root.flush()
        assert [] == landed
        assert 0 == servers.count_in_nats_log(" Violation")  # it doesn't even try


async def test_device_that_logs_in_by_mqtt_alone_names_no_reply_subject(servers):
    """P7, S1: the user of a device as the documentation has it can't log in by NATS, and MQTT has no reply subjects."""
    data = subject("data", "acme")
    with pytest.raises(nats.errors.Error):
        await nats.connect(servers.nats.url, user="device", password=PASSWORD, allow_reconnect=False)
    replies = {}

    async def on_data(message):
        replies[message.data] = message.reply

    async with client(servers, ROOT) as (root, _), device(servers) as mqtt:
        await root.subscribe(data, cb=on_data)
        await root.flush()
        for body, qos in BY_QOS.items():

            async def publish(body=body, qos=qos):
                await mqtt.publish(to_topic(data), body, qos=qos)
                return body in replies

            await until(publish)  # again if need be: nats-server may lose messages of QoS 0 and 2
    assert dict.fromkeys(BY_QOS, "") == replies


FORBIDDEN = [
    *(f"$JS.API.STREAM.{verb}.{stream}" for verb in ("PURGE", "DELETE", "MSG.DELETE", "UPDATE")
      for stream in ("$MQTT_msgs", "IOT", f"LANES_{ENV}_0")),
    f"$JS.API.STREAM.MSG.GET.LANES_{ENV}_0", f"$JS.API.DIRECT.GET.LANES_{ENV}_0", "$JS.API.STREAM.MSG.GET.IOT",
    f"$JS.API.CONSUMER.CREATE.LANES_{ENV}_0", f"$JS.API.CONSUMER.DURABLE.CREATE.LANES_{ENV}_0.gateways",
    f"$JS.API.CONSUMER.MSG.NEXT.LANES_{ENV}_0.x", "$JS.API.CONSUMER.DELETE.$MQTT_msgs.gateways",
    "$JS.API.CONSUMER.CREATE.$MQTT_msgs.mine", "$JS.API.STREAM.CREATE.MINE", f"dead.{ENV}.acme",
    f"settled.{ENV}.lanes.0", f"shares.{ENV}.all", f"ask.{ENV}.drop.acme", f"meter.{ENV}.node", "_INBOX.node.x",
    subject("data", "acme"), subject("close", "acme"), "victim.injected", "_INBOX.x.y",
]  # fmt: skip
REPLIES = [
    f"settled.{ENV}.lanes.0", f"dead.{ENV}.acme", "victim.injected", f"lanes.{ENV}.3.other.0.mid",
    f"$JS.API.STREAM.CREATE.{CONTROL.stream}", subject("response", "other"), "_INBOX.node.x.y",
]  # fmt: skip


async def test_gateway_reads_and_erases_nothing_else(servers):
    """P7, S1: it takes the devices' messages, and reaches no message that is in Evenlane, also if it is asked to."""
    async with client(servers, "gateway") as (gateway, denied), client(servers, ROOT) as (root, _):
        asked = await gateway.subscribe(SUBJECTS.wildcard("data"))
        await gateway.flush()

        async def request_with(reply):
            await root.publish(subject("data", "acme"), b"", reply=reply)
            await root.flush()
            try:
                message = await asked.next_msg(5)
            except nats.errors.TimeoutError:  # the server drops it if a connection is made again on a busy machine
                return None
            return message if message.reply == reply else None

        for forbidden in FORBIDDEN:
            request = await until(lambda: request_with(forbidden))  # noqa: B023 - called at once
            before, _ = len(denied), await request.respond(b"{}")
            await gateway.flush()
            await until(lambda: len(denied) > before, what=forbidden)  # noqa: B023 - called at once
        for pattern in (">", "_INBOX.>", "_INBOX.node.>", f"lanes.{ENV}.>", f"dead.{ENV}.>", "$MQTT.>", "$JS.API.>"):
            before, _ = len(denied), await gateway.subscribe(pattern)
            await gateway.flush()
            await until(lambda: len(denied) > before, what=pattern)  # noqa: B023 - called at once
