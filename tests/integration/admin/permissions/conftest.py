"""Servers that require the permissions, for all tests of a module."""

import asyncio
from contextlib import contextmanager

import pytest

from tests.support.permissions.guarded import GuardedServers
from tests.support.permissions.roles_at_work import begin


@contextmanager
def _started(folders, *kind):
    made = GuardedServers(folders.mktemp("guarded"), *kind)
    asyncio.run(begin(made))
    yield made
    asyncio.run(made.stop())


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with _started(tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Servers on which the producers of some projects have NATS accounts of their own."""
    with _started(tmp_path_factory, "accounts") as made:
        yield made


@pytest.fixture(scope="module")
def decentral(tmp_path_factory):
    """Servers whose users of NATS have JWTs."""
    with _started(tmp_path_factory, "jwt") as made:
        yield made


@pytest.fixture(params=["servers", "apart", "decentral"])
def any_kind(request):
    """Servers of each kind."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["servers", "decentral"])
def shared(request):
    """Servers on which all users are in one account."""
    return request.getfixturevalue(request.param)
