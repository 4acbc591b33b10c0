"""One browser for all tests of the page, and a node that shows what a test sets."""

from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.support.http import pictures
from tests.support.http.browser import launched, visit
from tests.support.http.serving import QUICK, FakeNode, server_of


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser():
    async with launched() as made:
        yield made


@pytest.fixture
def node():
    """A cluster with a hot tenant, some of whose dead letters have hostile contents."""
    made = FakeNode(**QUICK)
    made.shown = pictures.cluster()
    made.whys["acme"] = pictures.why()
    made.dead["acme"] = [pictures.dead_letter(3), pictures.dead_letter(7), pictures.dead_letter(19)]
    return made


@pytest.fixture
def seen(browser):
    """`async with seen(node, path) as page:`; further options are those of `visit`."""

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
