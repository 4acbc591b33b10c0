"""A producer without an event loop on real servers: forks, and the end of the process (P8)."""

import asyncio
import os
import subprocess
import sys

import pytest

from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from tests.support.streams import all_stored
from tests.support.topics import put_specs

pytestmark = pytest.mark.real

_BEGIN = """
import os, sys, threading, time
from evenlane.engine.producer.sync_producer import SyncProducer
from evenlane import Put
producer = SyncProducer(timeout=5)
"""


async def make_topic(endpoint, env):
    etcd = EtcdCoordination((endpoint,))
    try:
        await put_specs(etcd, env, await agree_cluster_config(etcd, env, {"partitions": 16}), {"acme": '{"qps": 1000}'})
    finally:
        await etcd.close()


@pytest.fixture
def run(nats_server, etcd_server, env):
    asyncio.run(make_topic(etcd_server.endpoint, env))

    def run_program(program, **more):
        given = {
            "EVENLANE_NATS": nats_server.url, "EVENLANE_ETCD": etcd_server.endpoint, "EVENLANE_ENV": env,
            "EVENLANE_PARTITIONS": "16",
        } | more  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", _BEGIN + program], env=os.environ | given, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run_program


def stored(nats_server, env) -> list[bytes]:
    return sorted(bytes(each.body) for each in asyncio.run(all_stored(nats_server.url, env, 16)))


def test_child_connects_anew_while_the_parents_puts_go_on(run, nats_server, env):
    out = run("""
stop, number, failed = threading.Event(), 0, []
def put():
    global number
    while not stop.is_set():
        try:
            producer.put("acme", b"parent %05d" % number)
            number += 1
        except Exception as error:
            failed.append(error)
producer.put("acme", b"first")
thread = threading.Thread(target=put)
thread.start()
for child in range(5):
    pid = os.fork()
    if not pid:
        producer.put("acme", b"child %d" % child)
        sys.exit()
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
thread.join()
print(number, failed)
""")
    number, failed = out.split(maxsplit=1)
    assert failed == "[]\n"
    parents = [b"parent %05d" % each for each in range(int(number))]
    assert stored(nats_server, env) == sorted([b"first", *parents, *(b"child %d" % child for child in range(5))])


def test_process_ends_without_close(run, nats_server, env):
    run("producer.put('acme', b'1')\nproducer.put_many(Put('acme', b'%d' % n) for n in range(2, 5))")
    assert stored(nats_server, env) == [b"1", b"2", b"3", b"4"]


def test_process_ends_while_another_thread_puts(run):
    run("""
def put():
    while True:
        producer.put('acme', b'1')
producer.put('acme', b'1')
threading.Thread(target=put, daemon=True).start()
threading.excepthook = lambda _: None
""")


def test_thread_that_outlives_the_main_thread_connects_by_name(run, nats_server, env):
    """Python refuses threads to its pools by then, in which a host's name is looked up."""
    run(
        """
def put():
    threading.main_thread().join()
    producer.put('acme', b'1')
threading.Thread(target=put).start()
""",
        EVENLANE_NATS=nats_server.url.replace("127.0.0.1", "localhost"),
    )
    assert stored(nats_server, env) == [b"1"]


def test_processes_of_a_pool_put(run, nats_server, env):
    run("""
import multiprocessing
def put(number):
    producer.put('acme', b'%d' % number)
put(0)
with multiprocessing.get_context('fork').Pool(2) as pool:
    pool.map(put, range(1, 5))
put(5)
""")
    assert stored(nats_server, env) == [b"%d" % number for number in range(6)]
