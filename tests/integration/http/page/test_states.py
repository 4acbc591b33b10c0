"""The page without tenants, without an overview, without a connection, and without a token."""

import pytest
from playwright.async_api import expect

from evenlane.engine.errors import Unreachable
from evenlane.engine.runtime.embedded.ports import free_port
from tests.support.http import pictures
from tests.support.http.browser import visit
from tests.support.http.serving import server_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

_GONE = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "503 (Service Unavailable)")


@pytest.mark.full
async def test_empty_page_shows_commands_for_first_tenant(seen, node):
    node.shown = pictures.overview(nodes=[pictures.node("w-0", [*range(8)])], partitions=8) | {"env": "sandbox"}
    async with seen(node) as page:
        await expect(page.get_by_role("heading", name="No tenants yet")).to_be_visible()
        await expect(page.locator(".state pre")).to_have_text(
            'evenlane topics set acme --qps 100 --env sandbox\nevenlane put acme "hello" --env sandbox'
        )
        await expect(page.locator("table.tenants")).to_be_hidden()
        node.shown = pictures.cluster()
        await expect(page.locator("tr.tenant")).to_have_count(10)


@pytest.mark.full
async def test_missing_overview_is_explained_until_it_comes(seen, node):
    node.fails = Unreachable("node w-0 has not joined the cluster, so it can't ask the others")
    async with seen(node) as page:
        await expect(page.locator("#banner")).to_have_text(
            "No overview: node w-0 has not joined the cluster, so it can't ask the others."
        )
        await expect(page.locator("#loading")).to_contain_text("Waiting for an overview")
        node.fails = None
        await expect(page.locator("tr.tenant")).to_have_count(10)
        await expect(page.locator("#banner")).to_be_hidden()
        node.fails = Unreachable("etcd does not answer")
        await expect(page.locator("#banner")).to_contain_text("No overview: etcd does not answer. The figures are of ")
        await expect(page.locator("body")).to_have_class("stale")


@pytest.mark.full
async def test_lost_connection_keeps_last_figures_and_recovers(browser, node):
    """The banner gives their time; the page need not be reloaded."""
    port = free_port()  # while nothing listens there, no outgoing connection takes it
    server = server_of(node, port=port)
    await server.open()
    async with visit(browser, server.address, forgiven=_GONE) as page:
        await expect(page.locator("tr.tenant")).to_have_count(10)
        await server.close()
        await expect(page.get_by_role("alert")).to_contain_text("Connection lost: trying again. The figures are of ")
        await expect(page.locator("body")).to_have_class("stale")
        await expect(page.locator("tr.tenant")).to_have_count(10)
        await expect(page.locator("#pulse")).to_have_text("no connection")
        again = node.__class__()
        again.shown = pictures.overview([pictures.tenant("back-again")])
        server = server_of(again, port=port)
        await server.open()
        await expect(page.locator("tbody[data-project]")).to_have_count(1)
        await expect(page.locator("tbody[data-project]")).to_have_attribute("data-project", "back-again")
        await expect(page.locator("#banner")).to_be_hidden()
        await expect(page.locator("body")).not_to_have_class("stale")
    await server.close()


@pytest.mark.full
async def test_node_without_token_names_its_setting(browser, node):
    server = server_of(node, token=None)
    await server.open()
    async with visit(browser, server.address, "/#/tenant/acme", forgiven=("403 (Forbidden)",)) as page:
        await page.get_by_role("button", name="Pause", exact=True).click()
        await page.keyboard.press("Enter")
        await page.locator("dialog input").fill("whatever it may be")
        await page.keyboard.press("Enter")
        await expect(page.locator("#toast")).to_contain_text("this node has none: the setting http_token_file")
        assert [] == node.changed
    await server.close()
