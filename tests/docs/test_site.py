"""The documentation can be built, is complete, and matches the code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(*arguments):
    """Run a script; return its exit code and output."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    assert (0, "") == script("-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder))
    return folder


def test_site_has_every_page_and_no_broken_link(site):
    """A strict build fails for a broken link or anchor, and for a page outside the navigation."""
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    pages -= {Path("adr/template"), Path("index")}
    assert pages == {page for page in pages if (site / page / "index.html").is_file()}


def test_site_loads_nothing_from_other_hosts(site):
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]*src=\"?https?:|<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*https?:"
    )
    assert [] == [path for path in site.rglob("*.html") if loaded.search(path.read_text(encoding="utf-8"))]


def test_generated_reference_matches_the_code():
    assert (0, "") == script("docs/generate", "--check")
