"""`app.run()`: a program that is a node."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from evenlane import Producer

pytestmark = pytest.mark.real

PROGRAM = """
import threading, time
from evenlane import Evenlane

app = Evenlane()

@app.handler("orders-*")
async def bill(message):
    print("billed", message.body.decode(), flush=True)

@app.handler("mail")
async def leave_a_thread(message):
    threading.Thread(target=time.sleep, args=(600,), name="left behind").start()
    print("started", flush=True)

app.run(concurrency=4)
"""


@asynccontextmanager
async def program(settings, text=PROGRAM, **environ):
    given = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")} | {
        "EVENLANE_NATS": settings.nats[0], "EVENLANE_ETCD": settings.etcd[0], "EVENLANE_ENV": settings.env,
        "EVENLANE_STORAGE": "memory", "EVENLANE_DRAIN_GRACE": "5", "PYTHONPATH": os.pathsep.join(sys.path), **environ,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", text, env=given, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line_of(process):
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()


async def test_program_handles_messages_and_drains(settings):
    async with program(settings) as process, Producer(settings=settings) as producer:
        assert (await line_of(process)).startswith("ready node=")
        await producer.put("orders-1", b"7")
        assert "billed 7" == await line_of(process)
        process.send_signal(signal.SIGTERM)
        assert 0 == await asyncio.wait_for(process.wait(), 60)


async def test_program_ends_whatever_threads_a_handler_has_left(settings):
    """P2: the log names the thread."""
    async with program(settings) as process, Producer(settings=settings) as producer:
        await line_of(process)
        await producer.put("mail", b"x")
        assert "started" == await line_of(process)
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), 60)
        assert 0 == process.returncode
        assert b"left behind" in log


@pytest.mark.parametrize(
    ("text", "environ", "sentence", "code"),
    [
        (
            "from evenlane import Evenlane; Evenlane().run()", {},
            "evenlane: the application has no handlers: decorate a function with @app.handler", 2,
        ),
        (
            "from evenlane import Evenlane; app = Evenlane(); app.handler(print); app.run(concurency=4)", {},
            "evenlane: ", 2,
        ),
        (PROGRAM, {"EVENLANE_ETCD": "127.0.0.1:1", "EVENLANE_START_TIMEOUT": "0"}, "evenlane: ", 1),
    ],
)  # fmt: skip
async def test_wrong_use_is_one_sentence(settings, text, environ, sentence, code):
    async with program(settings, text, **environ) as process:
        out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (b"", code) == (out, process.returncode)
    [line] = [each for each in err.decode().splitlines() if not each.startswith("{")]
    assert line.startswith(sentence)
