"""Nodes, producers and commands of neighbouring releases side by side (U1, U2)."""

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger import settle_logs
from tests.ledger.cli import evenlane
from tests.ledger.cluster import ProcessCluster
from tests.ledger.handlers import forgive
from tests.ledger.promises import (
    begun_again,
    check_cluster,
)
from tests.ledger.puts import one
from tests.ledger.released import NoHistory, release_after, release_before
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.source]


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    try:
        return release_before(tmp_path_factory.mktemp("before") / "code")
    except NoHistory as error:  # nothing else is a reason to skip
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def after(tmp_path_factory):
    return release_after(tmp_path_factory.mktemp("after") / "code")


async def hold_one_each(cluster, name):
    """Begin a message of each project whose handler runs until `forgive`."""
    held = [one(project, name, order="held") for project in cluster.projects]
    await cluster.put(await cluster.producer(), held)
    await until(lambda: {put.id for put in held} <= set(cluster.ids("begin")), 30, "the held ones to begin")
    return {put.id for put in held}


async def test_partitions_move_both_ways_between_two_releases(tmp_path, before):
    """U1, E14, P5: L, and no duplicates at all. Producers of both releases put meanwhile. Each release leads, joins,
    leaves, and gets partitions whose handlers still run under the other one.
    """
    async with ProcessCluster(tmp_path, lease_ttl=10) as cluster:
        old = await before.node(cluster, "old")
        await cluster.topics(*cluster.projects, ack_wait=60)
        await cluster.owned_by(old)
        async with before.puts(cluster), cluster.load() as load:
            await load.reaches_all()
            held = await hold_one_each(cluster, "long")
            [new] = await cluster.start("new")
            await cluster.owned_by(old, new)
            assert "old" == cluster.history.leader
            await load.reaches_all()
            assert not held & set(cluster.ids()), "they run across the moves"
            forgive(old.ledger)
            assert 0 == await old.stop(), old.last_words()
            await cluster.owned_by(new)
            await load.reaches_all()
            again = await before.node(cluster, "old")
            await cluster.owned_by(again, new)
            assert "new" == cluster.history.leader
            await load.reaches_all()
            assert 0 == await new.stop(), new.last_words()
            await cluster.owned_by(again)
            await load.reaches_all()
        own = [each for each in cluster.acknowledged if "-before" in each]
        assert len(own) > len(cluster.projects), "the other release's producer has put some"
        check_cluster(cluster)
        assert [] == begun_again(cluster.entries())
        assert {"lost": 0} == {"lost": again.logged(" lost ") + new.logged(" lost ")}


async def test_each_release_takes_over_from_the_other_after_a_crash(tmp_path, before):
    """U1, fault 1: L, O. Both releases read the same from the settle logs that both have written."""
    async with ProcessCluster(tmp_path) as cluster:
        old = await before.node(cluster, "old")
        await cluster.topics(*cluster.projects)
        async with before.puts(cluster), cluster.load() as load:
            [new] = await cluster.start("new")
            await cluster.owned_by(old, new)
            await load.reaches_all()
            await old.kill()
            await cluster.owned_by(new)
            await load.reaches_all()
            again = await before.node(cluster, "old")
            await cluster.owned_by(again, new)
            await load.reaches_all()
            await new.kill()
            await cluster.owned_by(again)
            await load.reaches_all()
        check_cluster(cluster)
        assert 0 == await again.stop(), again.last_words()
        theirs = await before.settle_logs(cluster)
        logs = await settle_logs.read(cluster.settings, cluster.partitions)
        ours = {name: [sorted(log.settled()), log.log.epoch, log.log.unreadable] for name, log in logs.items()}
        assert ours == theirs
        assert len(cluster.acknowledged) == sum(len(settled) for settled, _, _ in ours.values())


async def test_commands_of_each_release_work_with_nodes_of_the_other(tmp_path, before):
    """U1: they change and report the same."""
    async with ProcessCluster(tmp_path, lease_ttl=10) as cluster:
        nodes = [await before.node(cluster, "old"), *await cluster.start("new")]
        project = cluster.projects[0]
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(*nodes)
        await before.evenlane(cluster, "topics", "set", project, "--qps", "77")
        await before.evenlane(cluster, "topics", "pause", project)
        await cluster.put(await cluster.producer(), [one(project, "waits")])
        for run in (before.evenlane, evenlane):
            topic = await run(cluster, "topics", "get", project)
            assert (True, 77, "paused") == (topic["accepted"], topic["wish"]["qps"], topic["in_force"]["state"])
            peeked = await run(cluster, "backlog", "peek", project)
            shown = [each["id"] for part in peeked["priorities"] for each in part["messages"]]
            assert [f"{project}-waits"] == shown
            assert {"old", "new"} == {each["id"] for each in (await run(cluster, "plan"))["nodes"]}
            assert "paused" in str(await run(cluster, "why", project))
        await evenlane(cluster, "topics", "resume", project)
        await cluster.handled()


async def test_older_node_refuses_an_environment_of_a_newer_format(tmp_path, before):
    """U2: with one sentence. It would route messages to other partitions than this release."""
    async with ProcessCluster(tmp_path, lease_ttl=10) as cluster:
        [new] = await cluster.start("new", layout="consecutive")
        await cluster.topics(*cluster.projects)
        with pytest.raises(
            AssertionError, match="have format version 2, and this release knows 1: run the release that"
        ):
            await before.node(cluster, "old")
        assert 2 == await cluster.newest("old").ended()
        async with cluster.load() as load:
            await load.reaches_all()
        await cluster.owned_by(new)


async def test_log_of_a_newer_release_stops_its_partitions_alone(tmp_path, after):
    """U2, U3: L. A second node of this release can't take over what the newer one has written, so the leader leaves it
    there. When the node of the newer release has died, these partitions wait, and all others are served. As soon as a
    node of the newer release is there, it gets them.
    """
    async with ProcessCluster(tmp_path) as cluster:
        first, newer = *await cluster.start("first"), await after.node(cluster, "newer")
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(first, newer)
        theirs = set(cluster.history.owned("newer"))
        waiting = {cluster.projects[each] for each in theirs}
        others = {*cluster.projects} - waiting
        assert waiting
        assert others
        async with cluster.load() as load:
            await load.reaches_all()
            [second] = await cluster.start("second")
            await until(lambda: reported(cluster, "second"), 60, "it to get a partition that it can't take over")
            await until(lambda: theirs == set(cluster.history.owned("newer")), 60, "the newer one to have it back")
            await load.reaches_all()
            await newer.kill()
            await until(lambda: theirs == reported(cluster, "first", "second"), 60, "all of them to be reported")
            since = now_ns()
            await until(lambda: others <= begun_since(cluster, since), 30, "all others to be served")
            assert not waiting & begun_since(cluster, since)
            sentences = [cluster.history.value(f"nodes/{node.name}")["troubles"] for node in (first, second)]
            assert "settle log holds a record of version 3, and this release knows versions up to 2" in str(sentences)
            another = await after.node(cluster, "another")
            await until(lambda: theirs <= set(cluster.history.owned("another")), 60, "it to get them")
            await load.reaches_all()
            await until(lambda: not troubled(cluster, "first", "second"), 30, "the trouble to end")
        check_cluster(cluster)
        assert [0, 0, 0] == [await node.stop() for node in (another, first, second)]


def reported(cluster, *nodes):
    """The partitions that these nodes couldn't take over."""
    return {int(each) for node in nodes for each in cluster.history.value(f"nodes/{node}").get("unreadable", {})}


def troubled(cluster, *nodes):
    return [node for node in nodes if cluster.history.value(f"nodes/{node}")["troubles"]]


def begun_since(cluster, since):
    return {entry.project for entry in cluster.entries() if entry.what == "begin" and entry.at > since}
