"""The documentation can be built, is complete, and matches the code."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(*arguments, cwd=ROOT):
    """Run a script on the code of this checkout; return its exit code and output."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, check=False, text=True, timeout=250,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_site_has_every_page_no_broken_link_and_no_other_host(tmp_path):
    """A strict build fails for a broken link or anchor, and for a page outside the navigation. The site has its own
    scripts, styles, fonts and images.
    """
    assert (0, "") == script("-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path))
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    pages -= {Path("adr/template"), Path("index")}
    assert pages == {page for page in pages if (tmp_path / page / "index.html").is_file()}
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]*src=\"?https?:|<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*https?:"
    )
    assert [] == [path for path in tmp_path.rglob("*.html") if loaded.search(path.read_text(encoding="utf-8"))]


@pytest.mark.source
def test_generated_reference_matches_the_code():
    assert (0, "") == script("docs/generate", "--check")


def test_changed_docstring_makes_the_code_map_stale(tmp_path):
    for path in ROOT.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "priority").unlink()
    shutil.copytree(ROOT / "priority", tmp_path / "priority")
    module = tmp_path / "priority" / "headroom.py"
    module.write_text(module.read_text(encoding="utf-8").replace('"""', '"""Reserved slots. ', 1), encoding="utf-8")
    page = "docs/contributing/code-map.md"
    stale = f"{page} isn't what the code says: run `python docs/generate`\n"
    assert (1, stale) == script("docs/generate", "--check", page, cwd=tmp_path)
