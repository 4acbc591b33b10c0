"""The status page's files: all are there, kept by browsers, and told what not to do."""

import re

import pytest

from tests.support import ROOT
from tests.support.http.serving import served

PAGE = ROOT / "engine" / "http" / "page"
FILES = sorted(str(each.relative_to(PAGE)) for each in PAGE.rglob("*") if each.is_file())
TYPES = {
    "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml", "md": "text/plain; charset=utf-8", "LICENSE": "text/plain; charset=utf-8",
}  # fmt: skip


async def test_each_file_is_served_as_what_it_is():
    async with served() as (get, _):
        for name in FILES:
            status, headers, text = await get(f"/static/{name}")
            assert (200, TYPES[name.rpartition("/")[2].rpartition(".")[2]]) == (status, headers["content-type"])
            assert (PAGE / name).read_text() == text
        status, headers, text = await get("/")
        assert (200, (PAGE / "index.html").read_text()) == (status, text)


async def test_a_browser_that_has_it_is_told_so():
    async with served() as (get, _):
        for path in ("/", "/static/js/app.js"):
            _, headers, _ = await get(path)
            assert "no-cache" == headers["cache-control"]
            for known in (headers["etag"], f'"other", W/{headers["etag"]}', "*"):
                again = await get(path, if_none_match=known)
                assert (304, "", headers["etag"]) == (again[0], again[2], again[1]["etag"])
            assert 200 == (await get(path, if_none_match='"other"'))[0]


@pytest.mark.parametrize("path", ["/", "/static/js/app.js", "/api/overview", "/nothing", "/metrics", "/healthz"])
async def test_what_a_browser_must_not_do_with_it(path):
    """Nothing from elsewhere is loaded, nothing inline is run, nobody frames it."""
    async with served() as (get, _):
        _, headers, _ = await get(path)
        policy = headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= {*policy}
        assert "unsafe" not in headers["content-security-policy"]
        assert ("nosniff", "no-referrer", "DENY") == tuple(
            headers[name] for name in ("x-content-type-options", "referrer-policy", "x-frame-options")
        )
        assert headers["cache-control"] == ("no-store" if path[1:5] not in ("", "stat") else "no-cache")


def test_nothing_on_the_page_makes_html_of_text_or_comes_from_elsewhere():
    """Names, reasons and bodies are set as text: no file but the vendored one knows another way."""
    for name in FILES:
        text = (PAGE / name).read_text()
        if name.endswith((".js", ".html", ".css")) and not name.startswith("uplot/"):
            assert [] == re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
            assert [] == re.findall(r"""(?:src|href|url|from|import)\s*[=(]?\s*["'](?:https?:)?//""", text)
            assert [] == re.findall(r"""<script(?![^>]*src=)|\sstyle=|\son\w+=""", text)
        assert name.startswith("uplot/") or text.count("\n") < 300


def test_the_vendored_library_is_the_one_that_is_named():
    assert (
        (PAGE / "uplot" / "uPlot.iife.min.js")
        .read_text()
        .startswith("/*! https://github.com/leeoniya/uPlot (v1.6.32) */")
    )
    assert "MIT License" in (PAGE / "uplot" / "LICENSE").read_text()
    assert "uPlot 1.6.32" in (PAGE / "uplot" / "README.md").read_text()
