"""Servers that require the permissions, for all tests of a module."""

import asyncio
import json
from contextlib import asynccontextmanager

import nats
import pytest
from structlog.testing import capture_logs

from evenlane import BacklogFull, Engine, EvenlaneError, InvalidPut, Producer, Put, PutRefused, Receipt, Reject, Topics
from evenlane.engine.admin.backlog.peek import peek
from evenlane.engine.admin.backlog.purge import purge
from evenlane.engine.admin.dead_letters import client as dead_letters
from evenlane.engine.admin.export.client import StreamReader
from evenlane.engine.admin.plan import view
from evenlane.engine.admin.why.client import why
from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.core.export_port import Range
from evenlane.ring.coordination.ports import CoordinationError
from tests.support.node.running import running_engine
from tests.support.permissions.guarded import ENV, ROOT, GuardedServers
from tests.support.permissions.roles_at_work import PARTITIONS, begin, connected, handler, node, set_topics, stored
from tests.support.until import until


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    made = GuardedServers(tmp_path_factory.mktemp("guarded"))
    asyncio.run(begin(made))
    yield made
    asyncio.run(made.stop())


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Servers on which the producers of some projects have NATS accounts of their own."""
    made = GuardedServers(tmp_path_factory.mktemp("apart"), "accounts")
    asyncio.run(begin(made))
    yield made
    asyncio.run(made.stop())


@pytest.fixture(scope="module")
def decentral(tmp_path_factory):
    """Servers whose users of NATS have JWTs."""
    made = GuardedServers(tmp_path_factory.mktemp("decentral"), "jwt")
    asyncio.run(begin(made))
    yield made
    asyncio.run(made.stop())


@pytest.fixture(params=["servers", "apart", "decentral"])
def any_kind(request):
    """Servers of each kind."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["servers", "decentral"])
def shared(request):
    """Servers on which all users are in one account."""
    return request.getfixturevalue(request.param)
