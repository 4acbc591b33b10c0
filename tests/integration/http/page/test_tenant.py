"""The page of one tenant: its explanation, its dead letters, and its buttons."""

import pytest
from playwright.async_api import expect

from tests.support.http import pictures
from tests.support.http.browser import UNKNOWN
from tests.support.http.serving import TOKEN
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

_WHY_MS = 4_000
# `asked` has the requested paths; responses to those that begin with `holding` are `held` until the test releases them.
_ASKED = """holding => {
    const ask = window.fetch;
    Object.assign(window, { asked: [], held: [] });
    window.fetch = async (path, options) => {
        window.asked.push(path);
        const answer = await ask(path, options);
        if (!path.startsWith(holding)) return answer;
        const document = await answer.json();
        return new Promise((go) => window.held.push(() => go({ ok: true, json: () => document })));
    };
}"""
TIMES = "\u00d7"
REFUSED = ("401 (Unauthorized)",)
SHOTS = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>'


async def give_token(page, token=TOKEN):
    await page.locator("dialog input").fill(token)
    await page.keyboard.press("Enter")


async def test_page_explains_wait_and_draws_backlog(seen, node):
    async with seen(node, "/#/tenant/acme") as page:
        await expect(page.get_by_role("heading", level=1)).to_have_text("acme")
        why = page.locator("section.why")
        await expect(why.locator(".forecast")).to_have_text(
            "Forecast: never at this rate: 12,480 wait, 119.5/s arrive and 99.6/s are taken"
        )
        await expect(why.locator("article").nth(1)).to_contain_text("the topic's 100 msg/s are used up")
        await expect(why.locator("article").nth(1)).to_contain_text("2 groups, 12,480 messages")
        await expect(why.locator("article").nth(2)).to_contain_text("3 not due")
        await expect(why).to_contain_text("node w-0: settles are 0.4 s behind")
        await expect(page.locator("canvas")).to_have_count(2)
        await expect(page.locator(".plot").first).to_have_attribute(
            "aria-label", "Backlog: waiting now 12,480, at most 12,480"
        )
        assert "acme · Evenlane" == await page.title()
        await expect(page.locator(".u-legend").first).to_contain_text("12,480")  # without a pointer, the last figures


@pytest.mark.full
async def test_touch_moves_the_cursor_of_a_chart(seen, node):
    """The legend shows the figures under the finger."""
    async with seen(node, "/#/tenant/acme", has_touch=True) as page:
        plot = page.locator(".plot .u-over").first
        await expect(plot).to_be_visible()
        box = await plot.bounding_box()
        await page.touchscreen.tap(box["x"] + box["width"] - 2, box["y"] + 5)
        await expect(page.locator(".plot .u-cursor-x").first).not_to_have_class("u-hz u-cursor-x u-off")


async def stop_clock(page):
    """No time passes on the page until the test says so."""
    await page.clock.install(time=0)
    await page.clock.pause_at(_WHY_MS / 1000)


async def go(page, name):
    await page.evaluate("hash => { location.hash = hash; }", f"#/tenant/{name}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)


async def test_explanation_is_refreshed_also_after_failure(seen, node):
    """After one failed request, the same explanation is shown again."""
    async with seen(node, forgiven=("ERR_FAILED",)) as page:
        await page.clock.install()
        await go(page, "acme")
        why = page.locator("section.why")
        await expect(why).to_contain_text("Forecast: never at this rate")
        await page.route("**/api/why/*", lambda route: route.abort())
        await page.clock.fast_forward(_WHY_MS)
        await expect(why.locator(".forecast")).to_have_text("the node can't be reached")
        await page.unroute("**/api/why/*")
        await page.clock.fast_forward(_WHY_MS)
        await expect(why).to_contain_text("Forecast: never at this rate")
        node.whys["acme"] = pictures.why() | {"notes": ["another note"]}
        await page.clock.fast_forward(_WHY_MS)
        await expect(why).to_contain_text("another note")


async def test_hidden_page_sends_no_requests(seen, node):
    async with seen(node) as page:
        await stop_clock(page)
        await go(page, "acme")
        await expect(page.locator(".dead-letter")).to_have_count(3)
        await expect(page.locator("section.why")).to_contain_text("settles are 0.4 s behind")
        await page.evaluate(_ASKED, "nothing")
        await page.evaluate("Object.defineProperty(document, 'hidden', { value: true, writable: true })")
        for _ in range(5):
            await page.clock.fast_forward(_WHY_MS)
        assert [] == await page.evaluate("window.asked")
        await page.evaluate("document.hidden = false")
        await page.clock.fast_forward(_WHY_MS)
        assert ["/api/dead/acme/errors", "/api/why/acme"] == sorted(await page.evaluate("window.asked"))


@pytest.mark.full
async def test_omitted_tenant_shows_its_state(seen, node):
    """Its state is that of its topic: the wait reason "paused" has other causes, too."""
    tenants = [
        ("small", "active", False, "over quota 1.2 x", "Pause"),
        ("still", "paused", False, "paused", "Resume"),
        ("going", "draining", False, "draining", None),
        ("gone", "paused", True, "deleted", None),
        ("nobody", None, False, "no topic", None),
    ]  # fmt: skip
    for name, state, deleted, *_ in tenants:
        node.whys[name] = pictures.why(name, state, deleted)
    async with seen(node) as page:
        for name, _, _, chip, button in tenants:
            await go(page, name)
            await expect(page.locator("dl.totals")).to_contain_text("12,480")
            await expect(page.locator(".statuses .chip")).to_have_text(chip)
            await expect(page.locator(".bar-of-tools").get_by_role("button")).to_have_text([button] if button else [])


async def test_tenant_omitted_meanwhile_shows_current_state(seen, node):
    node.whys["acme"] = pictures.why(state="paused", deleted=True)
    async with seen(node) as page:
        await page.clock.install()
        await go(page, "acme")
        await expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
        await expect(page.locator("section.why")).to_contain_text("settles are 0.4 s behind")
        node.shown = pictures.overview([pictures.tenant("another")])
        await expect(page.locator("#notes")).to_be_hidden()
        await page.clock.fast_forward(_WHY_MS)
        await expect(page.locator(".statuses .chip")).to_have_text("deleted")
        await expect(page.get_by_role("button", name="Pause", exact=True)).to_be_hidden()


@pytest.mark.full
async def test_deleted_or_draining_tenant_has_no_button(seen, node):
    """A click doesn't bring back a deleted or draining topic, which the table doesn't show as paused."""
    node.shown = pictures.overview([
        pictures.tenant("gone", 5, "paused", state="paused", deleted=True),
        pictures.tenant("going", 4, "quota", state="draining"),
        pictures.tenant("still", 3, "paused", state="paused"),
    ])  # fmt: skip
    async with seen(node) as page:
        for name, state, buttons in (("gone", "deleted", 0), ("going", "draining", 0), ("still", "paused", 1)):
            await go(page, name)
            await expect(page.locator(".statuses .chip")).to_have_text(state)
            await expect(page.locator(".bar-of-tools").get_by_role("button")).to_have_count(buttons)
        await page.evaluate("() => { location.hash = '#/'; }")
        await page.locator("#filter").fill("deleted")
        await expect(page.locator("tbody[data-project]")).to_contain_text("gone")


async def test_tenant_is_paused_and_resumed_with_token(seen, node):
    """The page asks for the token when it needs it, and again after a wrong one; only this tab keeps it."""
    async with seen(node, "/#/tenant/acme", forgiven=REFUSED) as page:
        await page.get_by_role("button", name="Pause", exact=True).click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text(
            "No more messages of acme are handed out until it is resumed: 12,480 messages wait."
        )
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await expect(page.get_by_role("button", name="Pause", exact=True)).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Enter")
        await expect(page.locator("dialog input")).to_be_focused()
        assert [] == node.changed
        await give_token(page, "not the token of it")
        await expect(dialog.get_by_role("alert")).to_have_text("That isn't the token of this node.")
        node.shown = pictures.overview([pictures.tenant("acme", 5, "paused", state="paused")])
        await give_token(page)
        await expect(page.locator("#toast")).to_contain_text("acme is paused.")
        assert [("paused", "acme")] == node.changed
        await page.get_by_role("button", name="Resume", exact=True).click()
        await dialog.get_by_role("button", name="Resume").click()
        await expect(page.locator("#toast")).to_contain_text("acme is active.")
        assert ("active", "acme") == node.changed[-1]
        assert [TOKEN] == await page.evaluate("Object.values(sessionStorage)")
        assert ["", []] == await page.evaluate("[document.cookie, Object.values(localStorage)]")


async def test_earlier_overview_does_not_revert_button(seen, node):
    """An overview begun before a pause. A later one counts: somebody else may have resumed the topic."""
    async with seen(node) as page:
        await stop_clock(page)
        await page.evaluate("token => sessionStorage.setItem('evenlane-token', token)", TOKEN)
        await go(page, "acme")
        await page.get_by_role("button", name="Pause", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        await page.get_by_role("button", name="Resume", exact=True).wait_for()
        node.shown = pictures.overview([pictures.tenant("acme", 4321)])
        await expect(page.locator("dl.totals")).to_contain_text("4,321")
        await expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
        await page.clock.fast_forward(_WHY_MS)
        await page.get_by_role("button", name="Pause", exact=True).wait_for()


async def test_pause_starts_no_second_round_of_requests(seen, node):
    """A response to a request from before the pause is outdated, and starts no round of its own."""
    node.whys["small"] = pictures.why("small")
    async with seen(node) as page:
        await stop_clock(page)
        await page.evaluate(_ASKED, "/api/why/")
        await page.evaluate("token => sessionStorage.setItem('evenlane-token', token)", TOKEN)
        await go(page, "small")
        await answered(page, 0)
        await page.get_by_role("button", name="Pause", exact=True).wait_for()
        await page.clock.fast_forward(_WHY_MS)
        await until(lambda: page.evaluate("window.held.length === 2"))
        node.whys["small"] = pictures.why("small", "paused")
        await page.get_by_role("button", name="Pause", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        await answered(page, 2)
        await answered(page, 1)
        await page.clock.fast_forward(_WHY_MS)
        assert ["/api/why/small"] * 4 == [path for path in await page.evaluate("window.asked") if "why" in path]
        await expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()


async def test_page_left_during_pause_sends_no_more_requests(seen, node):
    async with seen(node) as page:
        await page.clock.install()
        await page.evaluate(_ASKED, "/api/topics/")
        await page.evaluate("token => sessionStorage.setItem('evenlane-token', token)", TOKEN)
        await go(page, "acme")
        await page.get_by_role("button", name="Pause", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        await until(lambda: page.evaluate("window.held.length === 1"))
        await go(page, "globex-eu")
        await page.evaluate("window.asked = []")
        await answered(page, 0)
        await page.clock.fast_forward(_WHY_MS)
        assert "/api/why/acme" not in await page.evaluate("window.asked")


async def answered(page, question):
    await until(lambda: page.evaluate("question => window.held.length > question", question))
    await page.evaluate("question => window.held[question]()", question)


@pytest.mark.full
async def test_dead_letters_are_replayed_one_or_all(seen, node):
    async with seen(node, "/#/tenant/acme") as page:
        dead_letters = page.get_by_role("listitem").filter(has=page.locator(".seq"))
        await expect(page.locator(".error-line .seq")).to_have_text(f"3 {TIMES}")
        await expect(dead_letters.locator(".seq")).to_have_text(["#3", "#7", "#19"])
        await expect(dead_letters.first).to_contain_text("max attempts ValueError: no such customer")
        await expect(dead_letters.first).to_contain_text("mid · 8 attempts · 412 B")
        await page.get_by_role("button", name="Replay dead letter 7").click()
        await expect(page.get_by_role("dialog")).to_contain_text("Message order-7 goes back into its queue")
        await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        assert [] == node.changed
        await page.get_by_role("button", name="Replay dead letter 7").click()
        await page.keyboard.press("Enter")
        await give_token(page)
        await expect(page.locator("#toast")).to_contain_text("Replayed 1 dead letter.")
        await expect(dead_letters.locator(".seq")).to_have_text(["#3", "#19"])
        await page.get_by_role("button", name="Replay all").click()
        await expect(page.get_by_role("dialog")).to_contain_text("2 messages of acme go back into their queues")
        await page.get_by_role("dialog").get_by_role("button", name="Replay 2").click()
        await expect(page.get_by_text("None: every message was handled")).to_be_visible()
        assert [("replay", "acme", 7), ("replay", "acme", None, 19)] == node.changed


def broken(seq, number, **fields):
    return pictures.dead_letter(seq, error=f"KeyError: 'user-{number}'", **fields)


async def test_dead_letters_of_an_error_are_dropped(seen, node):
    """K4: the page asks, and names how many; those of other errors, and those that die meanwhile, stay."""
    node.dead["acme"] += [broken(20, 1), broken(21, 1)]
    async with seen(node, "/#/tenant/acme") as page:
        await page.evaluate("token => sessionStorage.setItem('evenlane-token', token)", TOKEN)
        groups = page.locator(".error-group")
        await expect(groups.locator(".error-line .seq")).to_have_text([f"3 {TIMES}", f"2 {TIMES}"])
        await expect(page.locator(".dead .bar-of-tools")).to_contain_text("5 dead letters, 2 errors · kept for 1d")
        await expect(page.locator(".dead-letter")).to_have_count(0)
        node.dead["acme"].append(broken(22, 1))
        await groups.last.get_by_role("button", name="Drop").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("heading")).to_have_text("Drop 2 dead letters?")
        await expect(dialog).to_contain_text(
            "2 messages of acme are deleted, with their bodies. Nobody can restore them."
        )
        await expect(dialog).to_contain_text("The error: max attempts: KeyError: 'user-1'")
        await page.keyboard.press("Enter")  # the focus is on Cancel
        await expect(dialog).to_have_count(0)
        assert [] == node.changed
        await groups.last.get_by_role("button", name="Drop").click()
        await dialog.get_by_role("button", name="Drop 2").click()
        await expect(page.locator("#toast")).to_contain_text("Dropped 2 dead letters.")
        await expect(groups.locator(".error-line .seq")).to_have_text([f"3 {TIMES}", f"1 {TIMES}"])
        assert [3, 7, 19, 22] == [each["seq"] for each in node.dead["acme"]]
        assert ["http_token_file"] == node.authors


async def test_axis_of_counts_has_whole_numbers(seen, node):
    """Labels of half ticks would be rounded: 1, 1, 0."""
    node.shown = pictures.overview([pictures.tenant("acme", 1, "quota", rate=0.0)])
    async with seen(node) as page:
        await page.evaluate("""() => {
            const draw = CanvasRenderingContext2D.prototype.fillText;
            window.drawn = [];
            CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
                window.drawn.push([this.canvas.closest(".plot").getAttribute("aria-label"), text]);
                return draw.call(this, text, ...where);
            };
        }""")
        await go(page, "acme")
        await until(
            lambda: page.evaluate("window.drawn.some(([plot, text]) => plot.startsWith('Backlog') && text === '1')")
        )
        texts = await page.evaluate(
            "window.drawn.filter(([plot]) => plot.startsWith('Backlog')).map(([, text]) => text)"
        )
        first = [text for text in texts if ":" not in text]
        assert ["0", "1"] == first[: first.index("1") + 1]
        assert {"0", "1"} == {*first}


async def test_end_of_long_replay_is_shown(seen, node):
    node.ends["acme"] = {
        "project": "acme", "running": False, "replayed": 3, "failed": 0, "failures": [],
        "stopped": "topic acme was deleted",
    }  # fmt: skip
    async with seen(node, "/#/tenant/acme") as page:
        await expect(page.locator(".running")).to_have_text(
            "The last replay: 3 dead letters went back; topic acme was deleted"
        )


async def test_contents_of_dead_letter_are_shown_as_text(seen, node):
    """A body, reason, header or id may be HTML."""
    node.dead["acme"] = [
        pictures.dead_letter(3, SHOTS, SHOTS, id=SHOTS, key=SHOTS, subject=SHOTS, headers={SHOTS: SHOTS}, died_at=SHOTS)
    ]
    node.bodies[3] = SHOTS
    async with seen(node, "/#/tenant/acme") as page:
        assert 0 == len([each for each in node.asked if each == ("acme", 3)])  # a body is read on request
        show = page.get_by_role("button", name="Show dead letter 3")
        await show.click()
        inside = page.locator(".inside")
        await expect(inside.locator("pre")).to_have_text(SHOTS)
        await expect(inside.locator("dd")).to_have_text([SHOTS, SHOTS, "22 Nov, 15:00:00", UNKNOWN, SHOTS, SHOTS])
        await expect(page.locator(".dead-letter .cause")).to_have_text(f"{SHOTS} {SHOTS}")
        assert [None, 0, 0] == await page.evaluate(
            "[window.hit ?? null, ...['img', 'script'].map((tag) => document.querySelectorAll(`main ${tag}`).length)]"
        )
        await page.get_by_role("button", name="Show dead letter 3").click()
        await expect(inside).to_have_count(0)


@pytest.mark.full
async def test_name_in_address_is_shown_as_text(seen, node):
    async with seen(node, "/#/tenant/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", forgiven=("404", "400")) as page:
        await expect(page.get_by_role("heading", level=1)).to_have_text("<img src=x onerror=alert(1)>")
        assert 0 == await page.locator("main img").count()
