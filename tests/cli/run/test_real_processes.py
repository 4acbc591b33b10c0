"""`evenlane run --processes N` and `evenlane up` as processes with real nodes on real servers."""

import os
import re
import signal
from collections import Counter

import aiohttp
import psutil
import pytest

from evenlane.engine.base import names
from evenlane.engine.runtime.embedded.ports import free_port, is_free
from evenlane.ring.membership.records import OwnerRecord, decode
from tests.cli.run.conftest import Command, is_alive
from tests.ledger.cli import patiently
from tests.support.until import until

pytestmark = pytest.mark.real


async def owned(world) -> dict[str, int]:
    """The number of partitions by node."""
    found = await world.etcd.list(names.key(world.settings.env, "owners", ""))
    return Counter(decode(OwnerRecord, item.key, item.value).id for item in found.items)


async def test_three_nodes_print_one_ready_line_survive_a_kill_and_end_clean(real, world):
    """P2, P3, E7: the line is printed once each node has its share. A killed node is restarted under its name."""
    one = await real(3, partitions=8, http_port=0)
    line = await one.line()
    served = re.fullmatch(r"ready node=n partitions=8 generation=\d+ http=(http://127.0.0.1:\d+,?){3}", line)
    assert served, line
    ports = [address.rpartition(":")[2] for address in line.partition(" http=")[2].split(",")]
    assert ["n-0", "n-1", "n-2"] == [await _node_at(port) for port in ports]
    shares = await owned(world)
    assert ({"n-0", "n-1", "n-2"}, 8) == (set(shares), shares.total())
    before = one.nodes()
    assert {"n-0", "n-1", "n-2"} == set(before)
    assert {"n-0", "n-1", "n-2"} == {item.key.rpartition("/")[2] for item in await nodes_known(world)}

    before["n-1"].kill()

    async def is_back():
        known = {item.key.rpartition("/")[2]: item for item in await nodes_known(world)}
        return "n-1" in known and f'"pid":{before["n-1"].pid}' not in known["n-1"].value.decode().replace(" ", "")

    await until(is_back)
    await until(lambda: {"n-0", "n-1", "n-2"} == set(one.nodes()))
    after = one.nodes()
    assert {"n-1"} == {name for name in before if before[name].pid != after[name].pid}
    assert 1 == one.stderr_text().count("it is started again")
    await until(lambda: all_owned(world, 8))

    one.process.terminate()
    assert 0 == await one.ended()
    assert not any(map(is_alive, after.values()))
    assert () == await nodes_known(world)
    assert 0 == (await owned(world)).total()


async def nodes_known(world):
    return (await world.etcd.list(names.key(world.settings.env, "nodes", ""))).items


async def test_node_killed_before_readiness_is_restarted_and_nodes_end_with_their_supervisor(real, world):
    """X11, P2: a message that kills the first node before it is ready becomes a dead letter. The node is restarted as
    usual. E7: nodes drain when their supervisor is killed with SIGKILL, long before their leases end.
    """
    (world.folder / "poison.py").write_text("import os\n\n\nasync def handle(message):\n    os._exit(3)\n")
    producer = await world.producer()
    await patiently(world, "topics", "set", "acme", "--qps", "100", "--max-attempts", "1")
    await producer.put("acme", b"x", id="poison")
    one = await real(2, handler="poison:handle", partitions=8, lease_ttl=600)
    assert (await one.line()).startswith("ready node=n ")
    dead = await world.dead_letters()

    async def is_dead():
        return {"poison"} == await dead.ids()

    await until(is_dead, what="the dead letter")
    await until(lambda: all_owned(world, 8))
    await until(lambda: all_joined(world, 2))  # a node that is still starting doesn't end in order
    nodes = one.nodes().values()
    one.process.kill()
    await until(lambda: not any(map(is_alive, nodes)))
    assert -signal.SIGKILL == await one.ended()
    assert () == await nodes_known(world)
    assert 0 == (await owned(world)).total()


async def all_joined(world, nodes):
    """Each node has its record in etcd, which lives as long as its lease."""
    return len(await nodes_known(world)) == nodes


async def all_owned(world, partitions):
    return partitions == (await owned(world)).total()


async def test_missing_handler_is_reported_once(real):
    one = await real(2, "shop:nobody")
    assert 2 == await one.ended()
    assert "evenlane: handler 'shop:nobody': module shop has no 'nobody'" == one.stderr_text().strip()


async def _node_at(port):
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}/readyz") as response:
        return (await response.json())["node"]


async def test_up_runs_nodes_as_processes(tmp_path):
    """It prints its line when all are ready, and Ctrl-C ends nodes and servers in order."""
    one = Command(tmp_path)
    (tmp_path / "shop.py").write_text("async def handle(message): pass\n")
    arguments = ["--handler", "shop:handle", "--processes", "2", "--partitions", "8", "--data-dir", str(tmp_path / "d")]
    port = next(port for port in iter(free_port, None) if is_free(port + 1))
    await one.start("up", *arguments, "--http-port", str(port), EVENLANE_NODE="n")
    try:
        line, _, http = (await one.line()).partition(" http=")
        assert re.fullmatch(r"ready nats=nats://127\.0\.0\.1:\d+ etcd=127\.0\.0\.1:\d+", line)
        assert f"http://127.0.0.1:{port},http://127.0.0.1:{port + 1}" == http
        assert ["n-0", "n-1"] == [await _node_at(port), await _node_at(port + 1)]
        children = psutil.Process(one.process.pid).children()
        assert {"n-0", "n-1"} == set(one.nodes())
        os.killpg(one.process.pid, signal.SIGINT)
        assert 0 == await one.ended()
        assert (4, 2) == (len(children), one.stderr_text().count('"node stopped", "clean": true'))
        assert not any(map(is_alive, children))
    finally:
        if one.process.returncode is None:
            one.process.kill()
