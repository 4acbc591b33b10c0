"""One tenant's page, its dead letters, and what changes something (issue 7)."""

import pytest
from playwright.async_api import expect

from tests.support.http import pictures
from tests.support.http.browser import UNKNOWN
from tests.support.http.serving import TOKEN
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_WHY_MS = 4_000
# `asked` are paths; answers to those that begin with `holding` are `held` until the test lets them go.
_ASKED = """holding => {
    const ask = window.fetch;
    Object.assign(window, { asked: [], held: [] });
    window.fetch = async (path, options) => {
        window.asked.push(path);
        const answer = await ask(path, options);
        if (!path.startsWith(holding)) return answer;
        const told = await answer.json();
        return new Promise((go) => window.held.push(() => go({ ok: true, json: () => told })));
    };
}"""
REFUSED = ("401 (Unauthorized)",)
SHOTS = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>'


async def give_token(page, token=TOKEN):
    await page.locator("dialog input").fill(token)
    await page.keyboard.press("Enter")


async def test_why_it_waits_is_told_in_words_and_drawn(seen, node):
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


async def go(page, name):
    await page.evaluate("hash => { location.hash = hash; }", f"#/tenant/{name}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)


async def test_it_is_asked_again_every_few_seconds_whatever_came_of_it(seen, node):
    """Fault: a node that can't be reached for once; what it says then is shown, though it said the same before."""
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


async def test_nothing_is_asked_while_nobody_looks(seen, node):
    async with seen(node) as page:
        await page.clock.install()
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
        assert ["/api/dead/acme?limit=50", "/api/why/acme"] == sorted(await page.evaluate("window.asked"))


@pytest.mark.full
async def test_one_that_is_not_among_the_busiest_is_told_too(seen, node):
    """Its state is its topic's: what its queues wait for doesn't tell it, as "paused" has other causes, too."""
    reported = [
        ("small", "active", False, "", "Pause"),
        ("still", "paused", False, "paused", "Resume"),
        ("going", "draining", False, "draining", None),
        ("gone", "paused", True, "deleted", None),
        ("nobody", None, False, "no topic", None),
    ]  # fmt: skip
    for name, state, deleted, *_ in reported:
        node.whys[name] = pictures.why(name, state, deleted)
    async with seen(node) as page:
        for name, _, _, chip, button in reported:
            await go(page, name)
            await expect(page.locator("dl.totals")).to_contain_text("12,480")
            await expect(page.locator(".bar-of-tools .chip")).to_have_text(chip)
            await expect(page.locator(".bar-of-tools").get_by_role("button")).to_have_text([button] if button else [])


async def test_one_that_is_no_longer_among_the_busiest_is_told_of_what_is_known_now(seen, node):
    node.whys["acme"] = pictures.why(state="paused", deleted=True)
    async with seen(node) as page:
        await page.clock.install()
        await go(page, "acme")
        await expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
        await expect(page.locator("section.why")).to_contain_text("settles are 0.4 s behind")
        node.shown = pictures.overview([pictures.tenant("another")])
        await expect(page.locator("#notes")).to_be_hidden()
        await page.clock.fast_forward(_WHY_MS)
        await expect(page.locator(".bar-of-tools .chip")).to_have_text("deleted")
        await expect(page.get_by_role("button", name="Pause", exact=True)).to_be_hidden()


@pytest.mark.full
async def test_one_that_is_on_its_way_out_has_nothing_to_press(seen, node):
    """A topic that was deleted, or drains, doesn't come back by a click; the table tells it from a paused one."""
    node.shown = pictures.overview([
        pictures.tenant("gone", 5, "paused", state="paused", deleted=True),
        pictures.tenant("going", 4, "quota", state="draining"),
        pictures.tenant("still", 3, "paused", state="paused"),
    ])  # fmt: skip
    async with seen(node) as page:
        for name, state, buttons in (("gone", "deleted", 0), ("going", "draining", 0), ("still", "paused", 1)):
            await go(page, name)
            await expect(page.locator(".bar-of-tools .chip")).to_have_text(state)
            await expect(page.locator(".bar-of-tools").get_by_role("button")).to_have_count(buttons)
        await page.evaluate("() => { location.hash = '#/'; }")
        await page.locator("#filter").fill("deleted")
        await expect(page.locator("tbody[data-project]")).to_contain_text("gone")


async def test_it_is_paused_and_resumed_with_the_token(seen, node):
    """Asked for when it is needed, kept for this tab alone; a wrong one is told and asked for again."""
    async with seen(node, "/#/tenant/acme", forgiven=REFUSED) as page:
        await page.get_by_role("button", name="Pause", exact=True).click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Nothing of acme is handed out any more until it is resumed.")
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


async def test_an_overview_of_before_a_pause_does_not_turn_its_button_back(seen, node):
    """It was begun before it. One that still says so later is believed: somebody else may have resumed it."""
    async with seen(node) as page:
        await page.clock.install(time=0)
        await page.clock.pause_at(_WHY_MS / 1000)  # however long it takes, no time goes by until it is said
        await page.evaluate("token => sessionStorage.setItem('evenlane-token', token)", TOKEN)
        await go(page, "acme")
        await page.get_by_role("button", name="Pause", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        await page.get_by_role("button", name="Resume", exact=True).wait_for()
        node.shown = pictures.overview([pictures.tenant("acme", 4321)])
        await expect(page.locator("dl.totals")).to_contain_text("4,321")
        await expect(page.locator(".bar-of-tools .chip")).to_have_text("paused")
        await page.clock.fast_forward(_WHY_MS)
        await page.get_by_role("button", name="Pause", exact=True).wait_for()


async def test_a_pause_leaves_one_question_every_few_seconds(seen, node):
    """One that was asked before the pause is answered after it: it says nothing of now, and starts no round."""
    node.whys["small"] = pictures.why("small")
    async with seen(node) as page:
        await page.clock.install()
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
        await expect(page.locator(".bar-of-tools .chip")).to_have_text("paused")
        await page.clock.fast_forward(_WHY_MS)
        assert ["/api/why/small"] * 4 == [path for path in await page.evaluate("window.asked") if "why" in path]
        await expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()


async def test_who_leaves_while_a_pause_is_under_way_asks_no_more_about_it(seen, node):
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
        await page.get_by_role("dialog").get_by_role("button", name="Replay all").click()
        await expect(page.get_by_text("None: every message was handled")).to_be_visible()
        assert [("replay", "acme", 7), ("replay", "acme", None)] == node.changed


async def test_how_a_long_replay_ended_is_told_beside_what_stayed(seen, node):
    node.ends["acme"] = {
        "project": "acme", "running": False, "replayed": 3, "failed": 0, "failures": [],
        "stopped": "topic acme was deleted",
    }  # fmt: skip
    async with seen(node, "/#/tenant/acme") as page:
        await expect(page.locator(".running")).to_have_text(
            "The last replay: 3 dead letters went back; topic acme was deleted"
        )


async def test_what_a_dead_letter_holds_is_text_whatever_it_says(seen, node):
    """Fault: a body, a reason, a header or an id that is HTML."""
    node.dead["acme"] = [
        pictures.dead_letter(3, SHOTS, SHOTS, id=SHOTS, key=SHOTS, subject=SHOTS, headers={SHOTS: SHOTS}, died_at=SHOTS)
    ]
    node.bodies[3] = SHOTS
    async with seen(node, "/#/tenant/acme") as page:
        assert 0 == len([each for each in node.asked if each == ("acme", 3)])  # a body is read when somebody wants it
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
async def test_a_name_in_the_address_is_text(seen, node):
    async with seen(node, "/#/tenant/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", forgiven=("404", "400")) as page:
        await expect(page.get_by_role("heading", level=1)).to_have_text("<img src=x onerror=alert(1)>")
        assert 0 == await page.locator("main img").count()
