"""Accessibility: phones, keyboards, contrast in light and dark, reduced motion."""

import re

import pytest
from playwright.async_api import expect

from tests.support.http.browser import PHONE, overflow

pytestmark = pytest.mark.asyncio(loop_scope="session")

VIEWS = ["/", "/#/nodes", "/#/tenant/acme"]

# Each visible text with its colour, and the colour of its background, through transparent layers.
_TEXTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const ground = (node) => {
        const layers = [];
        for (let at = node; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
        return layers.reverse().reduce((below, [r, g, b, a]) =>
            [r, g, b].map((part, i) => part * a / 255 + below[i] * (1 - a / 255)), [255, 255, 255]);
    };
    const seen = [...document.querySelectorAll("body *")].filter((node) => !(node instanceof SVGElement)
        && node.checkVisibility() && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
    const ink = (node) => rgba(getComputedStyle(node).color).slice(0, 3);
    return seen.map((node) => [node.textContent.trim().slice(0, 40), ink(node), ground(node)]);
}"""


def contrast(one, other):
    """WCAG 2.2's ratio."""

    def luminance(colour):
        parts = [part / 255 for part in colour]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


async def test_contrast_ratio_is_that_of_wcag():
    assert 21 == contrast((0, 0, 0), (255, 255, 255))
    assert 4.54 == pytest.approx(contrast((118, 118, 118), (255, 255, 255)), abs=0.01)


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.full), "dark"])
async def test_each_text_has_sufficient_contrast(seen, node, scheme):
    async with seen(node, color_scheme=scheme) as page:
        for view in VIEWS:
            await page.goto(page.server.address + view)
            await expect(page.locator("main h1")).to_be_visible()
            found = await page.evaluate(_TEXTS)
            assert len(found) > 40
            assert {} == {text: round(contrast(*colours), 2) for text, *colours in found if contrast(*colours) < 4.5}
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (scheme == "dark") == (contrast([int(n) for n in re.findall(r"\d+", ground)][:3], (0, 0, 0)) < 2)


@pytest.mark.parametrize("view", [VIEWS[0], *(pytest.param(view, marks=pytest.mark.full) for view in VIEWS[1:])])
async def test_page_fits_phone(seen, node, view):
    """360 px: nothing overflows, buttons can be tapped, and each figure has its name next to it."""
    node.shown["tenants"][4]["project"] = "x" * 64
    async with seen(node, view, viewport=PHONE, is_mobile=True, has_touch=True) as page:
        await expect(page.locator("main h1")).to_be_visible()
        if view == "/":
            await page.get_by_role("button", name="Priorities", exact=True).tap()
            await expect(page.locator("tr.part")).to_have_count(30)
            label = await page.locator("tr.tenant td.backlog").first.evaluate(
                "e => getComputedStyle(e, '::before').content"
            )
            assert '"Backlog"' == label
            await page.select_option("#sort", "project")
            await expect(page.locator("tbody[data-project]").first).to_have_attribute("data-project", "acme")
        elif view == "/#/tenant/acme":
            await page.get_by_role("button", name="Show dead letter 3").tap()
            await expect(page.locator(".inside pre")).to_be_visible()
        assert 0 == await overflow(page)


async def test_page_is_usable_by_keyboard_alone(seen, node):
    """From the skip link to a tenant's page and its pause, and back; the focus is always visible."""
    async with seen(node) as page:
        await expect(page.locator("tr.tenant")).to_have_count(10)
        keys = page.keyboard
        await keys.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await expect(page.locator(".skip")).to_be_in_viewport()
        await keys.press("Enter")
        await expect(page.locator("main")).to_be_focused()
        passed = []
        for _ in range(40):
            await keys.press("Tab")
            name, ring = await page.evaluate(
                "[document.activeElement.textContent || document.activeElement.ariaLabel, "
                "getComputedStyle(document.activeElement).outlineStyle]"
            )
            passed.append(name)
            assert ("solid", name) == (ring, name)
            if name == "acme":
                break
        assert {"Tenant", "Status", "Backlog", "Priorities"} <= {*passed}
        await keys.press("Enter")
        await expect(page.locator("h1")).to_be_focused()
        await expect(page.locator("h1")).to_have_text("acme")
        await keys.press("Tab")
        await expect(page.get_by_role("button", name="Pause", exact=True)).to_be_focused()
        await keys.press("Enter")
        await expect(page.get_by_role("dialog").get_by_role("button", name="Pause")).to_be_focused()
        await keys.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.get_by_role("button", name="Pause", exact=True)).to_be_focused()
        await keys.press("Shift+Tab")
        await expect(page.locator(".back")).to_be_focused()
        await keys.press("Enter")
        await expect(page.locator("h1")).to_have_text("Tenants")


async def test_closing_dialog_does_not_steal_focus(seen, node):
    """The browser reports the close a moment later: a key pressed in between counts."""
    async with seen(node, "/#/tenant/acme") as page:
        await page.get_by_role("button", name="Pause", exact=True).click()
        quick = "dialog => { dialog.close(); document.querySelector('.back').focus(); }"
        await page.get_by_role("dialog").evaluate(quick)
        await expect(page.locator("dialog")).to_have_count(0)
        await expect(page.locator(".back")).to_be_focused()


@pytest.mark.full
async def test_reduced_motion_stops_animations(seen, node):
    async with seen(node, reduced_motion="reduce") as page:
        await expect(page.locator("tr.tenant")).to_have_count(10)
        moving = await page.evaluate(
            "[...document.querySelectorAll('*')].filter((e) => getComputedStyle(e).animationName !== 'none').length"
        )
        assert 0 == moving


@pytest.mark.full
async def test_changed_figures_keep_column_widths(seen, node):
    """Columns keep their widths whatever they contain."""
    async with seen(node) as page:
        heads = page.locator("table.tenants thead th")
        widths = "all => all.map((e) => e.getBoundingClientRect().width)"
        await expect(page.locator("tr.tenant")).to_have_count(10)
        before = await heads.evaluate_all(widths)
        node.shown["tenants"][0] |= {"backlog": 987_654_321, "arriving": 1_234_567.0, "reason": None}
        await expect(page.locator("tr.tenant td.backlog").first).to_have_text("987,654,321")
        assert before == await heads.evaluate_all(widths)
        assert "tabular-nums" == await page.evaluate("getComputedStyle(document.body).fontVariantNumeric")
