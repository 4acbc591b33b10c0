"""The end of `evenlane run` as a process: what threads, blocking handlers and further signals change."""

import contextlib
import itertools
import os
import signal
import time

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.control.topics.client import TopicClient
from tests.cli.run.conftest import Command
from tests.support.until import until

pytestmark = pytest.mark.real

_fresh = itertools.count()

# Each module puts its own message, as the store lives in the node's memory, and says on stderr how far it is.
_SHOP = """
import asyncio, atexit, sys, threading, time
from evenlane import Engine, Producer

def say(word):
    print(word, file=sys.stderr, flush=True)

kept = []

async def put_one():
    async with Producer() as producer:
        await producer.put("acme", b"x")

def start():
    kept.append(asyncio.get_running_loop().create_task(put_one()))

"""
_HANDLERS = {
    "thread": """
async def handle(message):
    atexit.register(say, "said goodbye")
    threading.Thread(target=threading.Event().wait, name="user-thread").start()
    say("handling")
""",
    "executor": """
async def handle(message):
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    say("handling")
""",
    "clean": """
async def handle(message):
    atexit.register(say, "said goodbye")
    await asyncio.to_thread(say, "handling")
""",
    "blocking": """
async def handle(message):
    say("handling")
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            pass
""",
    "slow": """
async def handle(message):
    say("handling")
    while not is_stopping():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    say("handled")
""",
    "endless": """
async def handle(message):
    say("handling")
    await asyncio.Event().wait()
""",
}
# The message comes from the node's own process, once it is ready.
_CODE = """
import asyncio, evenlane.engine.runtime.serve as serve
inner = serve.serve
async def outer(engine, joined=None, *rest):
    import shop
    shop.is_stopping = lambda: engine.is_stopping
    def started():
        if joined is not None: joined()
        shop.start()
    return await inner(engine, started, *rest)
serve.serve = lambda engine, joined=None, draining=None, on_stop=None: outer(engine, joined, draining, on_stop)
"""


@pytest.fixture
async def node(etcd_server, tmp_path):
    """`evenlane run shop:handle` on a store in memory, with a message that it handles."""
    one = Command(tmp_path, f"exec({_CODE!r})")

    async def started(kind: str, **settings: object) -> Command:
        (tmp_path / "shop.py").write_text(_SHOP + _HANDLERS[kind])
        env = f"stop{next(_fresh)}"
        await _set_topic(etcd_server.endpoint, env)
        given = {"store": "memory://stop", "etcd": etcd_server.endpoint, "env": env, "node": "n"} | settings
        await one.start("run", "shop:handle", **{f"EVENLANE_{key.upper()}": str(value) for key, value in given.items()})
        if kind != "blocking":  # it blocks the loop before the line is printed
            await one.line()
        await until(lambda: "handling" in one.stderr_text())
        return one

    yield started
    if one.process.returncode is None:
        one.process.kill()


async def _set_topic(etcd, env):
    coordination = connections.etcd(Settings(etcd=(etcd,), env=env))
    config = await agree_cluster_config(coordination, env, {"partitions": 2})
    await TopicClient(coordination, env, config).change("acme", {"qps": 100})
    await coordination.close()


async def test_clean_node_ends_as_usual(node):
    one = await node("clean")
    one.process.terminate()
    assert 0 == await one.ended()
    assert "threads are left" not in one.stderr_text()
    assert "said goodbye" in one.stderr_text()


@pytest.mark.parametrize(("kind", "name"), [("thread", "user-thread: "), ("executor", "asyncio_")])
async def test_threads_of_a_handler_delay_the_end_by_a_second_and_are_named(node, kind, name):
    one = await node(kind)
    one.process.terminate()
    await until(lambda: "node stopped" in one.stderr_text())
    stopped = time.monotonic()
    assert 0 == await one.ended()
    assert time.monotonic() - stopped < 5, "1 s, on a machine that is busy"
    assert "threads are left: the process ends without them" in one.stderr_text()
    assert name in one.stderr_text()
    assert "threading.py" in one.stderr_text()
    assert ("said goodbye" in one.stderr_text()) == (kind == "thread")


@pytest.mark.parametrize(
    ("number", "code", "text"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
@pytest.mark.parametrize("kind", ["blocking", "endless"])
async def test_second_signal_ends_the_node_at_once(node, kind, number, code, text):
    one = await node(kind, drain_grace="1h", block_limit="0")
    one.process.send_signal(number)

    # Two signals that are pending at the same time are one for the process.
    async def has_ended():
        with contextlib.suppress(ProcessLookupError):  # (asyncio's `send_signal` would reap the process itself)
            os.kill(one.process.pid, number)
        return one.process.returncode is not None

    await until(has_ended)
    assert code == await one.ended()
    assert f"evenlane: {text}\n" in one.stderr_text()


async def test_slow_handler_ends_within_the_grace(node):
    one = await node("slow", drain_grace="60s")
    one.process.terminate()
    assert 0 == await one.ended()
    assert "handled" in one.stderr_text()
