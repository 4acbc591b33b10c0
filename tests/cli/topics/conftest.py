"""Runs `evenlane topics` in the test's own environment, and writes directly to its keys."""

import asyncio
from functools import partial

import pytest

from evenlane.ring.coordination.etcd.client import EtcdCoordination


@pytest.fixture
def topics(on_etcd):
    """Runs `evenlane topics ...`: (exit code, stdout, stderr)."""
    return partial(on_etcd, "topics")


@pytest.fixture
def by_hand(etcd, own_env):
    """Writes a value directly to a key of the environment, or deletes the key (None)."""

    async def written(kind, project, raw):
        client = EtcdCoordination([etcd.endpoint])
        key = f"/evenlane/{own_env}/{kind}/{project}"
        await (client.delete(key) if raw is None else client.put(key, raw))
        await client.close()

    return lambda kind, project, raw: asyncio.run(written(kind, project, raw))
