"""One browser for all tests of a module, and a node that shows what a test wants."""

from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from evenlane.engine.http import live_feed
from tests.support.http import pictures
from tests.support.http.browser import launched, visit
from tests.support.http.serving import QUICK, FakeNode, server_of


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    async with launched() as made:
        yield made


@pytest.fixture
def node():
    """A cluster with a hot tenant, whose dead letters hold what an attacker could have put there."""
    made = FakeNode(**QUICK)
    made.shown = pictures.cluster()
    made.whys["acme"] = pictures.why()
    made.dead["acme"] = [pictures.dead_letter(3), pictures.dead_letter(7), pictures.dead_letter(19)]
    return made


@pytest.fixture
def seen(browser):
    """`async with seen(node, path) as page:`; what `visit` takes beside."""

    @asynccontextmanager
    async def see(node, path="/", **options):
        server = server_of(node)
        await server.open()
        try:
            async with visit(browser, server.address, path, **options) as page:
                page.server = server
                yield page
        finally:
            await server.close()

    return see
