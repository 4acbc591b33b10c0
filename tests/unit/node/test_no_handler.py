"""Messages without a handler wait, with a reason of their own; nothing is lost, and nobody else waits."""

from structlog.testing import capture_logs

from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.handlers.routes import Route, RouteTable
from tests.support.node.world import World, change, topic
from tests.support.until import until


def reasons(node, project):
    return {node.wait_rules.reason(queue) for queue in node.queues.of_project(project) if queue.backlog}


def routes(world, *pairs):
    return RouteTable([Route(pattern, Handler.of(world.note), kind) for pattern, kind in pairs])


async def test_project_without_a_handler_waits_and_others_do_not():
    """X8: the reason is `no_handler`, and the log has it once."""
    async with World(acme=topic(), bolt=topic()) as world:
        with capture_logs() as logs:
            node = await world.node(routes=routes(world, ("acme", None)))
            await world.put_many(5, project="bolt")
            await world.put_many(5, project="bolt", group=1)
            await world.put_many(5)
            await until(lambda: len(world.handled) == 5)
            await until(lambda: node.backlog == 10)
        assert {"acme"} == {message.project for message in world.handled}
        assert {"no_handler"} == reasons(node, "bolt")
        lines = [line for line in logs if line["event"].startswith("messages of a project wait: this node has no")]
        assert ["bolt"] == [line["project"] for line in lines]


async def test_node_with_the_handler_gets_what_has_waited():
    async with World(acme=topic(), bolt=topic()) as world:
        node = await world.node(routes=routes(world, ("acme", None)))
        ids = [await world.put(project="bolt", group=group) for group in range(4)]
        await until(lambda: node.backlog == 4)
        await node.stop()
        await world.node(routes=routes(world, ("*", None)))
        await until(lambda: sorted(world.ids) == sorted(ids))


async def test_topic_with_push_needs_no_handler():
    """Until its topic has `push`, the project waits."""
    pushed = []

    async def push(message):
        pushed.append(message.id)

    async with World(acme=topic(), bolt=topic()) as world:
        node = await world.node(routes=routes(world, ("acme", None)), push=push)
        bolt = await world.put(project="bolt")
        await until(lambda: reasons(node, "bolt") == {"no_handler"})
        change(world, node, topic(push={"url": "http://127.0.0.1:1/"}), "bolt")
        await until(lambda: pushed == [bolt])


async def test_kind_without_a_handler_waits_and_others_of_its_queue_do_not():
    """X8: a queue of nothing else has the reason `no_handler`."""
    async with World() as world:
        with capture_logs() as logs:
            node = await world.node(routes=routes(world, ("acme", "refund")))
            for kind in ("other", "refund", None, "other", "refund"):
                await world.put(headers={} if kind is None else {"kind": kind})
            await until(lambda: len(world.handled) == 2)
            await until(lambda: reasons(node, "acme") == {"no_handler"})
        assert {"refund"} == {message.headers["kind"] for message in world.handled}
        assert 3 == node.backlog
        lines = [(line["event"].partition(" wait")[0], line.get("kind")) for line in logs if " wait: " in line["event"]]
        assert [("messages of a kind", "other"), ("messages without a kind", None)] == lines
        assert await node.stop()
        await world.node(routes=routes(world, ("acme", None)))
        await until(lambda: len(world.handled) == 5)


async def test_kind_without_a_handler_is_pushed_once_its_topic_has_push():
    pushed = []

    async def push(message):
        pushed.append(message.id)

    async with World() as world:
        node = await world.node(routes=routes(world, ("acme", "refund")), push=push)
        old = await world.put(headers={"kind": "other"})
        await until(lambda: reasons(node, "acme") == {"no_handler"})
        change(world, node, topic(push={"url": "http://127.0.0.1:1/"}))
        new = await world.put(headers={"kind": "other"})
        await until(lambda: {old, new} == set(pushed))
        await until(lambda: node.backlog == 0)


async def test_too_many_messages_of_such_kinds_withhold_their_project():
    """The node's memory stays bounded; other projects go on."""
    async with World(acme=topic(), bolt=topic()) as world:
        node = await world.node(routes=routes(world, ("acme", "refund"), ("bolt", None)))
        await world.put_many(4_200, headers={"kind": "other"})
        await until(lambda: node.queues.explain_withheld("acme") == "no_handler")
        await world.put(project="bolt")
        await until(lambda: len(world.handled) == 1)
        assert 4_200 == node.backlog


async def test_ordered_key_waits_behind_a_kind_without_a_handler():
    """The order of a key holds for messages that wait for a handler, too."""
    async with World(acme=topic(ordered=True)) as world:
        node = await world.node(routes=routes(world, ("acme", "refund")))
        keyed = {"Evenlane-Key": "k"}
        await world.put(headers=keyed | {"kind": "other"})
        await world.put(headers=keyed | {"kind": "refund"})
        other = await world.put(headers={"Evenlane-Key": "l", "kind": "refund"})
        await until(lambda: world.ids == [other])
        assert 2 == node.backlog
