"""Files of the status page: they are complete, cached by browsers, and restricted."""

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


async def test_each_file_is_served_with_its_content_type():
    async with served() as (get, _):
        for name in FILES:
            status, headers, text = await get(f"/static/{name}")
            assert (200, TYPES[name.rpartition("/")[2].rpartition(".")[2]]) == (status, headers["content-type"])
            assert (PAGE / name).read_text() == text
        status, headers, text = await get("/")
        assert (200, (PAGE / "index.html").read_text()) == (status, text)


async def test_cached_file_is_answered_with_304():
    async with served() as (get, _):
        for path in ("/", "/static/js/app.js"):
            _, headers, _ = await get(path)
            assert "no-cache" == headers["cache-control"]
            for known in (headers["etag"], f'"other", W/{headers["etag"]}', "*"):
                again = await get(path, if_none_match=known)
                assert (304, "", headers["etag"]) == (again[0], again[2], again[1]["etag"])
            assert 200 == (await get(path, if_none_match='"other"'))[0]


@pytest.mark.parametrize("path", ["/", "/static/js/app.js", "/api/overview", "/nothing", "/metrics", "/healthz"])
async def test_headers_forbid_remote_files_inline_code_and_frames(path):
    async with served() as (get, _):
        _, headers, _ = await get(path)
        policy = headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= {*policy}
        assert "unsafe" not in headers["content-security-policy"]
        assert ("nosniff", "no-referrer", "DENY") == tuple(
            headers[name] for name in ("x-content-type-options", "referrer-policy", "x-frame-options")
        )
        assert headers["cache-control"] == ("no-store" if path[1:5] not in ("", "stat") else "no-cache")


def test_page_builds_no_html_from_text_and_loads_no_remote_file():
    """Names, reasons and bodies are set as text."""
    for name in FILES:
        text = (PAGE / name).read_text()
        if name.endswith((".js", ".html", ".css")) and not name.startswith("uplot/"):
            assert [] == re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
            assert [] == re.findall(r"""(?:src|href|url|from|import)\s*[=(]?\s*["'](?:https?:)?//""", text)
            assert [] == re.findall(r"""<script(?![^>]*src=)|\sstyle=|\son\w+=""", text)
        assert name.startswith("uplot/") or text.count("\n") < 300


def test_vendored_library_has_the_named_version():
    assert (
        (PAGE / "uplot" / "uPlot.iife.min.js")
        .read_text()
        .startswith("/*! https://github.com/leeoniya/uPlot (v1.6.32) */")
    )
    assert "MIT License" in (PAGE / "uplot" / "LICENSE").read_text()
    assert "uPlot 1.6.32" in (PAGE / "uplot" / "README.md").read_text()
