"""A headless Chromium, with the hosts that it requested and the messages of its console."""

import shutil
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from playwright.async_api import async_playwright, expect

_ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
UNKNOWN = "\u2013"  # shown in place of an unknown figure
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
_TIMEOUT_MS = 60_000  # of each step and expectation

expect.set_options(timeout=_TIMEOUT_MS)


def program():
    found = shutil.which("chromium")
    assert found is not None, "there is no `chromium` on PATH: `apt-get install chromium` installs the Debian package"
    return found


@asynccontextmanager
async def launched():
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program(), args=_ARGUMENTS, timeout=_TIMEOUT_MS)
        try:
            yield browser
        finally:
            await browser.close()


class Visit:
    """A tab of a new visitor, with the hosts that it requested and its console messages."""

    def __init__(self, page):
        self.page = page
        self.hosts = set()
        self.console_messages = []
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on(
            "console",
            lambda message: message.type in ("error", "warning") and self.console_messages.append(message.text),
        )
        page.on("pageerror", lambda error: self.console_messages.append(f"uncaught: {error}"))


@asynccontextmanager
async def visit(browser, address, path="/", viewport=None, forgiven=(), **options):
    """Open a page. Fails unless all of it comes from `address` and the console is empty but for `forgiven` texts."""
    context = await browser.new_context(viewport=viewport or DESKTOP, **options)
    context.set_default_timeout(_TIMEOUT_MS)
    try:
        page = await context.new_page()
        seen = Visit(page)
        await page.goto(address + path)
        yield page
        assert {urlsplit(address).netloc} == seen.hosts
        assert [] == [text for text in seen.console_messages if not any(part in text for part in forgiven)]
    finally:
        await context.close()


async def overflow(page):
    """The number of pixels by which the page, or a table in it, is wider than its visible part."""
    return await page.evaluate(
        "Math.max(...[document.documentElement, ...document.querySelectorAll('.scroll')]"
        ".map((box) => box.scrollWidth - box.clientWidth))"
    )
