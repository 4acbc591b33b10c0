"""E17: the example receiver takes what the pusher sends, and nothing else."""

import asyncio
import sys

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.node.push.pusher import Pusher
from evenlane.engine.node.push.response import PushFailed
from evenlane.engine.runtime.embedded.ports import free_port
from tests.support import ROOT
from tests.support.push.receiver import message
from tests.support.until import until

EXAMPLE = ROOT / "examples" / "receiver.py"


@pytest.fixture
async def url(tmp_path):
    """The receiver's address and its output."""
    (tmp_path / "acme.key").write_text("old-secret new-secret\n")
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLE, str(tmp_path / "acme.key"), str(port), stdout=asyncio.subprocess.PIPE
    )
    await until(lambda: listens(port))
    yield f"http://127.0.0.1:{port}/", process.stdout
    process.kill()
    await process.wait()


async def listens(port):
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_receiver_checks_signatures_and_handles_each_message_once(url, tmp_path):
    address, printed = url
    pusher = Pusher(Settings(push_private=True, push_secrets=tmp_path))
    (tmp_path / "wrong").write_text("something else")
    try:
        for attempt in (1, 2):
            await pusher(message(address, push={"secret_ref": "acme.key"}, attempt=attempt, body=b"hello"))
        await pusher(message(address, push={"secret_ref": "acme.key"}, id="another", body=b"bye"))
        for push in ({"secret_ref": "wrong"}, {}):
            with pytest.raises(PushFailed, match="HTTP 401"):
                await pusher(message(address, push=push))
    finally:
        await pusher.close()
    assert b"acme:order-17, attempt 1: hello\n" == await printed.readline()
    assert b"acme:another, attempt 1: bye\n" == await printed.readline()
