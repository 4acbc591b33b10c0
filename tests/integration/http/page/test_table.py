"""The table of tenants: status, rates, quota, backlog and oldest message, by priority."""

import pytest
from playwright.async_api import expect

from tests.support.http import pictures
from tests.support.http.browser import UNKNOWN
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


def row(page, project):
    return page.locator(f'tbody[data-project="{project}"]')


async def order(page):
    return await page.locator("table.tenants tbody[data-project]").evaluate_all(
        "all => all.map((e) => e.dataset.project)"
    )


async def expect_order(page, projects):
    await until(lambda: holds_order(page, projects), what=f"the order {projects}")


async def holds_order(page, projects):
    return projects == await order(page)


async def test_row_shows_figures_and_status(seen, node):
    async with seen(node) as page:
        hot = row(page, "acme").locator("tr.tenant")
        await expect(hot.locator("td.backlog")).to_have_text("12,480")
        await expect(hot.locator("td.oldest_seconds")).to_have_text("5m 12s")
        await expect(hot.locator("td.arriving")).to_have_text("120")
        await expect(hot.locator("td.handled")).to_have_text("99.6")
        await expect(hot.locator("td.quota")).to_have_text("99.6 of 100")
        await expect(hot.locator("td.status")).to_have_text("over quota 1.2 x")
        await expect(hot.locator("td.gone")).to_have_text("never")
        await expect(hot.locator("td.trend path.line")).to_have_attribute("d", "M96.0 1.5")
        assert ["wayne", "cyberdyne"] == (await order(page))[:2]
        await expect(row(page, "hooli").locator("td.status")).to_have_text("paused")
        await expect(row(page, "cyberdyne").locator("td.status")).to_have_text("no topic")
        totals = page.locator("dl.totals").first
        for text in ("13,692", "421", "Nodes", "2 partitions unowned"):
            await expect(totals).to_contain_text(text)
        await expect(page.locator("#notes")).to_have_text(
            "2 of 128 partitions have no owner: their backlog isn't known"
        )
        node.shown = pictures.overview([pictures.tenant("acme", 12_000, "fairness")])
        await expect(hot.locator("td.backlog")).to_have_text("12,000")
        await expect(hot.locator("td.status")).to_have_text("waits: fairness")
        await expect_order(page, ["acme"])
        await expect(page.locator("#notes")).to_be_hidden()


@pytest.mark.full
async def test_status_is_explained_on_hover_and_focus(seen, node):
    async with seen(node) as page:
        chip = row(page, "acme").locator("td.status .chip").first
        await chip.hover()
        await expect(page.get_by_role("tooltip")).to_contain_text(
            "it offers 1.2 x its quota: 120/s arrive, 100/s are allowed"
        )
        await page.keyboard.press("Escape")
        await expect(page.locator("#tip")).to_be_hidden()
        await row(page, "hooli").locator("td.status .chip").focus()
        await expect(page.get_by_role("tooltip")).to_contain_text("evenlane topics resume hooli --env online")
        await expect(row(page, "hooli").locator("td.status .chip")).to_have_attribute("aria-describedby", "tip")


async def test_troubles_come_first(seen, node):
    """X13: the table is sorted by urgency, and says of each tenant what is wrong."""
    node.shown = pictures.troubles()
    async with seen(node) as page:
        await expect_order(page, [
            "no-owner", "no-topic", "no-handler", "failing", "half-failing", "expiring", "slow-endpoint", "flooding",
            "late", "catching-up", "paused", "leaving", "calm",
        ])  # fmt: skip
        await expect(row(page, "failing").locator("td.status")).to_have_text("failing 100 %")
        await expect(row(page, "failing").locator("td.failed")).to_have_text("9")
        await expect(row(page, "failing").locator("td.dead")).to_have_text("2")
        await expect(row(page, "failing").locator("td.handled")).to_have_text("0")


async def test_table_is_sorted_by_keyboard_and_pointer(seen, node):
    """The column tells screen readers; unknown values come last."""
    async with seen(node) as page:
        heads = page.locator("table.tenants thead th")
        await expect(heads.nth(1)).to_have_attribute("aria-sort", "ascending")
        await heads.nth(0).get_by_role("button").focus()
        await page.keyboard.press("Enter")
        await expect(heads.nth(0)).to_have_attribute("aria-sort", "ascending")
        names = sorted(await order(page))
        await expect_order(page, names)
        await page.keyboard.press("Space")
        await expect_order(page, names[::-1])
        await heads.nth(9).get_by_role("button").click()
        assert ("acme", "cyberdyne") == ((await order(page))[0], (await order(page))[-1])
        await expect(page.locator("thead [aria-sort]")).to_have_count(1)


@pytest.mark.full
async def test_table_is_filtered_by_name_or_status(seen, node):
    async with seen(node) as page:
        await expect(page.locator("tr.tenant")).to_have_count(10)
        await page.keyboard.press("/")
        await page.keyboard.type("WO")
        await expect(page.locator("tr.tenant")).to_have_count(1)
        await expect_order(page, ["wonka"])
        await expect(page.locator(".bar-of-tools [role=status]")).to_have_text("1 of 10 tenants")
        await page.fill("#filter", "paused")
        await expect_order(page, ["hooli"])
        await page.fill("#filter", "nobody")
        await expect(page.locator(".sheet .state")).to_have_text("No tenant's name or status has “nobody” in it.")
        await page.fill("#filter", "")
        await expect(page.locator("tr.tenant")).to_have_count(10)


@pytest.mark.full
async def test_priorities_are_shown_on_request(seen, node):
    async with seen(node) as page:
        toggle = row(page, "acme").get_by_role("button", name="priorities of acme")
        await toggle.focus()
        await page.keyboard.press("Enter")
        await expect(toggle).to_have_attribute("aria-expanded", "true")
        parts = row(page, "acme").locator("tr.part")
        await expect(parts.locator("th")).to_have_text(["high", "mid", "low"])
        await expect(parts.locator("td.backlog")).to_have_text(["0", "12,480", "0"])
        await expect(parts.nth(1).locator("td.status")).to_have_text("quota")
        await toggle.click()
        await expect(parts).to_have_count(0)
        await page.get_by_role("button", name="Priorities", exact=True).click()
        await expect(page.locator("tr.part")).to_have_count(30)


@pytest.mark.full
async def test_order_is_kept_under_pointer(seen, node):
    """While the pointer is on a row the order stays, and figures change in place."""
    async with seen(node) as page:
        await row(page, "acme").locator("td.backlog").hover()
        before = await order(page)
        swapped = pictures.cluster()
        swapped["tenants"][0] = pictures.tenant("acme", 1)
        node.shown = swapped
        await expect(row(page, "acme").locator("tr.tenant td.backlog")).to_have_text("1")
        await expect_order(page, before)
        await page.mouse.move(5, 5)
        await expect(page.locator("tbody[data-project]").nth(3)).to_have_attribute("data-project", "globex-eu")


@pytest.mark.full
async def test_omitted_tenants_are_summed_up(seen, node):
    left = {"projects": 4900, "backlog": 77, "in_flight": 1, **pictures.flow(3.0), "arriving": None, "priorities": []}
    node.shown = pictures.overview([pictures.tenant("acme")], left_out=left)
    async with seen(node) as page:
        await expect(page.locator("tbody.rest td.project")).to_have_text("4,900 more, less busy")
        await expect(page.locator("tbody.rest td.backlog")).to_have_text("77")
        await expect(page.locator("tbody.rest td.arriving")).to_have_text(UNKNOWN)


@pytest.mark.full
async def test_browser_keeps_up_with_hundreds_of_changing_tenants(seen, node):
    """300 tenants with 3 priorities: cells are changed, not recreated, and no update takes the browser long."""
    names = [f"tenant-{number:03}" for number in range(300)]

    def tick(number):
        return pictures.overview(
            [pictures.tenant(name, (at * 7 + number) % 1000, "quota") for at, name in enumerate(names)]
        )

    node.shown = tick(0)
    async with seen(node) as page:
        await expect(page.locator("tr.tenant")).to_have_count(300)
        await page.get_by_role("button", name="Priorities", exact=True).click()
        await expect(page.locator("tr.part")).to_have_count(900)
        await page.evaluate("""() => {
            window.kept = document.querySelector('tbody[data-project="tenant-007"] td.backlog');
            window.long = [];
            new PerformanceObserver((list) => window.long.push(...list.getEntries().map((e) => e.duration)))
                .observe({ type: "longtask" });
        }""")
        for number in range(1, 6):
            node.shown = tick(number)
            await expect(row(page, "tenant-007").locator("tr.tenant td.backlog")).to_have_text(str(49 + number))
        assert await page.evaluate("window.kept.isConnected && window.kept.textContent") == "54"
        assert max([0, *await page.evaluate("window.long")]) < 1000
