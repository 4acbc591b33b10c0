"""The status page of a real node on real servers, in a real browser."""

import pytest
from playwright.async_api import expect

from evenlane.engine.base import names
from evenlane.engine.producer.put import Put
from evenlane.ring.membership.records import OwnerRecord, decode
from tests.ledger.world import ProcessWorld
from tests.support.http.browser import visit
from tests.support.http.serving import TOKEN
from tests.support.until import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real]


async def put(world, producer, project, count=1, **fields):
    await world.put(producer, [Put(project, b"<b>not a word of HTML</b>", **fields) for _ in range(count)])


async def agree(page):
    """Confirm the open dialog."""
    await page.get_by_role("dialog").get_by_role("button").last.click()


async def test_page_shows_and_changes_state_of_real_node(browser, tmp_path):
    """X8, X9: the wait for quota and owners are shown; a replayed message is handled again; a paused topic waits."""
    (tmp_path / "token").write_text(TOKEN)
    async with ProcessWorld(tmp_path, duplicate_window=2) as world:
        await world.node(http_port=0, http_token_file=tmp_path / "token")
        await world.node(name="node-b")
        await world.topics("acme", qps=0.01, groups=1, burst=1)
        await world.topics("calm")
        producer = await world.producer()
        await put(world, producer, "acme", 30, priority="high")
        await put(world, producer, "calm", 5)
        await put(world, producer, "calm", id="broken", headers={"order": "once reject"})
        address = await world.address()
        async with visit(browser, address, forgiven=("404 (Not Found)",)) as page:
            await shows_status(page, "waits: quota")
            await page.goto(f"{address}/#/nodes")
            await shows_owners(page, world)
            await page.goto(f"{address}/#/tenant/calm")
            await replays_dead_letter(page, world)
            await page.goto(f"{address}/#/tenant/acme")
            await pauses_tenant(page)
            await page.goto(f"{address}/#/")
            await shows_status(page, "paused")


async def shows_status(page, status):
    hot = page.locator('tbody[data-project="acme"] tr.tenant')
    await expect(hot.locator("td.backlog")).to_have_text("29")
    await expect(hot.locator("td.status")).to_have_text(status)


async def shows_owners(page, world):
    pieces = page.locator(".ring .piece")
    await expect(pieces).to_have_count(8)
    owners = await owned(world)
    labels = await pieces.evaluate_all("all => all.map((e) => e.ariaLabel)")
    assert labels == [f"partition {number}: {owners[number]}" for number in range(8)]
    assert {"node-a", "node-b"} == {*owners.values()}


async def replays_dead_letter(page, world):
    await expect(page.locator(".dead-letter")).to_contain_text("as ordered")
    await page.get_by_role("button", name="Show dead letter").click()
    await expect(page.locator(".inside pre")).to_have_text("<b>not a word of HTML</b>")
    assert "broken" not in world.ids()
    await page.get_by_role("button", name="Replay dead letter").click()
    await agree(page)
    await page.locator("dialog input").fill(TOKEN)
    await agree(page)
    await expect(page.locator("#toast")).to_contain_text("Replayed 1 dead letter.")
    await world.handled("broken")
    await expect(page.locator(".dead-letter")).to_have_count(0)


async def pauses_tenant(page):
    await expect(page.locator("section.why")).to_contain_text("the topic's 0.01 msg/s")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await agree(page)
    await expect(page.locator("#toast")).to_contain_text("acme is paused.")
    await expect(page.locator("section.why .chip").first).to_have_text("paused")


@pytest.mark.full
async def test_killed_node_is_silent_until_its_partitions_are_taken_over(browser, tmp_path):
    """Fault 1: after kill -9, the other node takes its partitions over once the lease has ended."""
    async with ProcessWorld(tmp_path) as world:
        await world.node(http_port=0)
        other = await world.node(name="node-b", lease_ttl=15)  # it is silent before
        async with visit(browser, await world.address(), "/#/nodes") as page:
            rows = page.locator("table.nodes tbody tr")
            await expect(page.locator(".piece.owner-1")).to_have_count(4)
            await other.kill()
            await expect(rows.last).to_contain_text("no answer")
            await expect(page.locator("#notes")).to_contain_text("node node-b did not answer: its figures are missing")
            await expect(page.locator(".piece.owner-0")).to_have_count(8)
            await expect(rows).to_have_count(1)


@pytest.mark.full
async def test_partitions_without_owner_are_marked(browser, tmp_path):
    """Fault 1: as long as the leader plans nothing, the partitions of the dead node are hatched red."""
    async with ProcessWorld(tmp_path) as world:
        other = await world.node(name="node-b")
        await world.node(http_port=0)
        async with visit(browser, await world.address(), "/#/nodes") as page:
            await expect(page.locator(".piece.owner-1")).to_have_count(4)
            lease = await world.etcd.grant(60)
            await other.kill()
            await world.etcd.put(names.key("online", "leader"), b'{"id": "somebody"}', lease=lease)
            await expect(page.locator(".piece.unowned")).to_have_count(4)
            await expect(page.locator("#notes")).to_contain_text("4 of 8 partitions have no owner")
            await expect(page.locator(".ring text").last).to_have_text("4 unowned")


async def owned(world):
    """Partition -> owner, as etcd has it."""
    prefix = names.key("online", "owners", "")
    return {
        int(item.key.removeprefix(prefix)): decode(OwnerRecord, item.key, item.value).id
        for item in (await world.etcd.list(prefix)).items
    }


@pytest.mark.full
async def test_open_page_does_not_delay_drain(browser, tmp_path):
    """Fault 3: the drain of a node waits for no viewer."""
    async with ProcessWorld(tmp_path) as world:
        node = await world.node(http_port=0)
        address = await world.address()
        forgiven = ("ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_REFUSED")
        async with visit(browser, address, forgiven=forgiven) as page:
            await expect(page.get_by_role("heading", name="No tenants yet")).to_be_visible()
            assert 0 == await node.stop()
            await expect(page.get_by_role("alert")).to_contain_text("Connection lost")
        assert 0 == node.logged("ERROR")
        assert 0 == node.logged("Cancel")


@pytest.mark.full
async def test_page_reports_missing_etcd_and_recovers(browser, tmp_path):
    """Fault 5: the node continues by its lease, or rejoins; the page names the missing server."""
    async with ProcessWorld(tmp_path) as world:
        node = await world.node(http_port=0)
        address = await world.address()
        async with visit(browser, address, forgiven=("503",)) as page:
            await expect(page.get_by_role("heading", name="No tenants yet")).to_be_visible()
            await world.servers.etcd.kill()
            await expect(page.locator("#banner")).to_contain_text("No overview: ")
            await world.servers.etcd.start()
            await expect(page.locator("#banner")).to_be_hidden()
        await until(lambda: node.running)
