"""The page of nodes, with the partitions as a ring."""

import pytest
from playwright.async_api import expect

from tests.support.http import pictures
from tests.support.http.browser import UNKNOWN

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.full
async def test_partition_has_colour_of_its_owner(seen, node):
    async with seen(node, "/#/nodes") as page:
        pieces = page.locator(".ring .piece")
        await expect(pieces).to_have_count(128)
        fills = await pieces.evaluate_all("all => all.map((e) => getComputedStyle(e).fill)")
        assert (3, 2) == (len({*fills[:126]}), fills.count('url("#hatch")'))
        assert fills[0] == fills[3] != fills[1]
        swatch = await page.locator(".nodes .swatch").first.evaluate("e => getComputedStyle(e).backgroundColor")
        assert fills[0] == swatch
        await expect(page.locator(".ring text")).to_have_text(["128 partitions", "2 unowned"])
        node.shown = pictures.overview(nodes=[pictures.node("w-0", [*range(128)])])
        await expect(page.locator(".ring text")).to_have_text(["128 partitions", "1 node"])
        assert 0 == await page.locator(".piece.unowned").count()


async def test_owners_are_shown_by_pointer_keyboard_and_table(seen, node):
    async with seen(node, "/#/nodes") as page:
        pieces = page.locator(".ring .piece")
        texts = page.locator(".ring text")
        await pieces.nth(4).hover()
        await expect(texts).to_have_text(["partition 4", "w-1"])
        await page.mouse.move(5, 300)
        await expect(texts).to_have_text(["128 partitions", "2 unowned"])
        await pieces.nth(0).focus()
        await page.keyboard.press("ArrowLeft")
        await expect(pieces.nth(127)).to_be_focused()
        await expect(texts).to_have_text(["partition 127", "no owner"])
        await expect(pieces.nth(127)).to_have_attribute("aria-label", "partition 127: no owner")
        await page.keyboard.press("Home")
        await page.keyboard.press("ArrowRight")
        await expect(texts).to_have_text(["partition 1", "w-1"])
        assert 1 == await page.locator(".piece[tabindex='0']").count()
        await page.locator("summary").click()
        rows = page.locator("table.plain tbody tr")
        await expect(rows).to_have_count(4)
        await expect(rows.last).to_have_text("nobody126\u2013127")


@pytest.mark.full
async def test_row_shows_health_of_node(seen, node):
    silent = pictures.node("w-9", [1], answered=False, leader=False, http="javascript:alert(1)") | dict.fromkeys(
        ("generation", "backlog", "in_flight", "slots", "arriving", "handled", "lease_seconds", "loop_lag_seconds",
         "settle_lag_seconds", "cpu")
    )  # fmt: skip
    trouble = {"blocked": "has been blocked for 12 s by jobs.py:41"}
    fenced = pictures.node("w-0", [0], lease_seconds=-1.0, loop_lag_seconds=0.9, troubles=trouble)
    node.shown = pictures.overview(nodes=[fenced, silent], partitions=2)
    async with seen(node, "/#/nodes") as page:
        rows = page.locator("table.nodes tbody tr")
        await expect(rows.first).to_contain_text("leader")
        await expect(rows.first.locator("td.slots")).to_have_text("40 of 64")
        await expect(rows.first.locator("td.lease")).to_have_text("ended")
        await expect(rows.first.locator("td[data-tone=fault]")).to_have_text(["ended", "900 ms"])
        await expect(rows.first.locator("a")).to_have_attribute("href", "http://127.0.0.1:8080/#/nodes")
        chip = rows.first.get_by_text("blocked")
        await expect(chip).to_have_attribute("title", "node w-0 has been blocked for 12 s by jobs.py:41")
        await expect(rows.last).to_contain_text("no answer")
        await expect(rows.last.locator("td.handled")).to_have_text(UNKNOWN)
        assert None is await rows.last.locator("a").get_attribute("href")


@pytest.mark.full
async def test_thousands_of_partitions_are_drawn_as_runs(seen, node):
    half = 2048
    node.shown = pictures.overview(
        nodes=[pictures.node("a-0", [*range(half)]), pictures.node("b-1", [*range(half, 2 * half - 8)])],
        partitions=2 * half, unowned=range(2 * half - 8, 2 * half),
    )  # fmt: skip
    async with seen(node, "/#/nodes") as page:
        await expect(page.locator(".piece")).to_have_count(3)
        await page.locator(".piece").nth(1).focus()
        await expect(page.locator(".ring text")).to_have_text(["partitions 2048\u20134087", "b-1"])


async def test_subscriptions_are_shown_once_there_are_named_ones(seen, node):
    """K10: the one that holds storage, and the one that nobody runs, stand out."""
    rows = [
        {"name": None, "state": "active", "nodes": 3, "behind": 12, "holds": 0},
        {"name": "audit", "state": "active", "nodes": 0, "behind": 40_120, "holds": 40_108},
        {"name": "billing", "state": "creating", "nodes": 0, "behind": None, "holds": None},
    ]
    async with seen(node, "/#/nodes") as page:
        table = page.get_by_role("table", name="Subscriptions")
        await expect(page.locator("table.nodes").first).to_be_visible()
        await expect(table).to_be_hidden()
        node.shown = pictures.cluster() | {"subscriptions": rows}
        await expect(table.locator("tbody tr")).to_have_text(
            ["(unnamed)active3120", "auditactive040,12040,108", f"billingcreating0{UNKNOWN}{UNKNOWN}"]
        )
        await expect(table.locator("td[data-tone=fault]")).to_have_text(["0", "40,108", "creating", "0"])
        node.shown = pictures.cluster()
        await expect(table).to_be_hidden()
