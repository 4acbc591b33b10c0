"""The example client that puts without Evenlane's code: its checks before it sends anything."""

import asyncio
import json
import sys
from base64 import b64decode, b64encode
from contextlib import asynccontextmanager

import pytest

from tests.support import ROOT

_PROGRAM = ROOT / "examples" / "plain_client.py"


@asynccontextmanager
async def gateway(values):
    """etcd's HTTP gateway with these values; yields its address."""

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        asked = b64decode(json.loads(await reader.readexactly(length))["key"]).decode()
        value = b64encode(json.dumps(values[asked]).encode()).decode()
        body = json.dumps({"kvs": [{"value": value}]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("version", "topic", "sentence"),
    [
        (3, {"state": "active"}, "environment online has a newer format"),
        (1, {"state": "draining"}, "acme is draining and takes no messages"),
        (2, {"state": "paused", "deleted": True}, "the topic of acme is deleted and takes no messages"),
    ],
)
async def test_plain_client_puts_nothing_that_is_refused(version, topic, sentence):
    """P8: by `version`, `state` and `deleted`, as docs/reference/headers-and-subjects.md says."""
    accepted = {"active": 2, "spread": 1, **topic}
    settings = {"version": version, "partitions": 16, "priorities": ["high", "mid", "low"]}
    values = {"/evenlane/online/settings": settings, "/evenlane/online/accepted/acme": accepted}
    async with gateway(values) as address:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(_PROGRAM), "acme", "hello", stderr=asyncio.subprocess.PIPE,
            env={"EVENLANE_ETCD": address, "EVENLANE_NATS": "nats://127.0.0.1:1"},
        )  # fmt: skip
        _, err = await asyncio.wait_for(process.communicate(), 60)
    assert (1, True) == (process.returncode, err.decode().startswith(sentence))
