"""E17 with real servers and a node as people start it: by `topics set --push`, to the endpoint, through a restart."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.embedded.child import GUARD
from evenlane.engine.runtime.embedded.pair import Servers
from tests.support.until import until

pytestmark = pytest.mark.real
_MAIN = "from evenlane.engine.cli.main import main; main()"


@pytest.fixture
async def environ(tmp_path):
    """That of a node that may push to this machine, with one secret."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "acme").write_text("s3cret")
    async with Servers(tmp_path / "servers", fast=True) as both:
        reported = {"NATS": both.nats.url, "ETCD": both.etcd.endpoint, "PARTITIONS": "4", "LEASE_TTL": "2"}
        reported |= {"PUSH_PRIVATE": "true", "PUSH_SECRETS": str(tmp_path / "secrets")}
        path = os.pathsep.join(filter(None, sys.path))
        yield {**os.environ, "PYTHONPATH": path, **{f"EVENLANE_{key}": value for key, value in reported.items()}}


async def started(environ, *arguments):
    guard = (sys.executable, "-I", "-S", str(GUARD), str(os.getpid()))
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *guard, sys.executable, "-c", _MAIN, *arguments, env=environ, stdout=pipe, stderr=pipe
    )


async def reported(environ, *arguments):
    """Exit code, and what it said on stderr."""
    _, err = await (process := await started(environ, *arguments)).communicate()
    return process.returncode, err.decode()


@asynccontextmanager
async def node(environ):
    process = await started(environ, "run", "--handler", "evenlane.engine.push:handle", "--node", "pusher")
    try:
        assert b"ready node=pusher" in await process.stdout.readline()
        yield
        process.terminate()
        _, err = await process.communicate()
        assert (0, False) == (process.returncode, b"Traceback" in err), err.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_messages_reach_the_endpoint_through_a_restart(environ, receiver):
    """L: the first node's endpoint asks for a rest; the next one pushes what is left, in first attempts."""
    push = f'{{"url": "{receiver.url}/hook", "secret_ref": "acme"}}'
    assert (0, "") == await reported(environ, "topics", "set", "acme", "--qps", "1000", "--push", push)
    settings = Settings(nats=(environ["EVENLANE_NATS"],), etcd=(environ["EVENLANE_ETCD"],), partitions=4)
    taken = []

    async def at_most_50(request):
        if len(taken) == 50:
            return web.Response(status=429, headers={"Retry-After": "600"})
        taken.append(await request.read())
        return web.Response(status=202)

    receiver.behaviour = at_most_50
    async with Producer(settings=settings) as producer:
        await producer.put_many([Put("acme", b"%d" % n, headers={"traceparent": "t"}) for n in range(200)])
        async with node(environ):
            await until(lambda: len(receiver.seen) > 50, 30)
        receiver.behaviour = None
        before = len(receiver.seen)
        async with node(environ):
            await until(lambda: len({seen.body for seen in receiver.seen[before:]}) >= 150, 30)
    assert {b"%d" % n for n in range(200)} == {*taken, *(seen.body for seen in receiver.seen[before:])}
    assert {("1", "t", "/hook")} == {
        (seen.headers["evenlane-attempt"], seen.headers["traceparent"], seen.path) for seen in receiver.seen
    }
    assert all(seen.headers["webhook-signature"].startswith("v1,") for seen in receiver.seen)


async def test_a_url_that_is_none_is_refused_before_anything_is_written(environ):
    """Bad input: one sentence, exit code 2."""
    code, err = await reported(
        environ, "topics", "set", "acme", "--qps", "10", "--push", '{"url": "acme.example/hook"}'
    )
    assert (2, 1) == (code, err.count("\n"))
    assert 'topic acme: push.url must begin with http:// or https://, not be "acme.example/hook"' in err
    assert 1 == (await reported(environ, "topics", "get", "acme"))[0]
