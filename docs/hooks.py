"""Hooks of mkdocs: links from pages to files of the repository outside docs/.

In the repository such a link leads to the file. On the site it leads to a page that shows the file as it was when the
site was built, so that the site is whole without a network. A link to a folder becomes plain text.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
SHOWN = "source"  # the folder of the site for pages that show files
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_LANGUAGES = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".json": "json", ".toml": "toml", ".js": "javascript"}
_log = logging.getLogger("mkdocs.hooks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside docs/ that a page links to, and for what these link to."""
    pages = [(f"docs/{page.src_uri}", page.content_string) for page in files.documentation_pages()]
    seen: set[str] = set()
    while pages:
        path, text = pages.pop()
        for target in sorted(_outside(path, text) - seen):
            seen.add(target)
            if not (ROOT / target).is_file():
                continue
            content = _shown(target)
            uri = f"{SHOWN}/{_page_of(target)}"
            files.append(File.generated(config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
            if target.endswith(".md"):
                pages.append((target, content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    uri = page.file.src_uri
    here = uri.removeprefix(f"{SHOWN}/") if page.file.generated_by else f"docs/{uri}"

    def linked(link: re.Match[str]) -> str:
        label, path, anchor = link[1], link[2], link[3] or ""
        target = _target(here, path)
        if target is None or (target.startswith("docs/") and here.startswith("docs/")):
            return link[0]
        if (ROOT / target).is_dir():
            return label
        if not (ROOT / target).exists():
            _log.warning("%s links to %s, which isn't there", here, path)
        there = target.removeprefix("docs/") if target.startswith("docs/") else f"{SHOWN}/{_page_of(target)}"
        return f"[{label}]({posixpath.relpath(there, posixpath.dirname(uri) or '.')}{anchor})"

    return _LINK.sub(linked, markdown)


def _outside(path: str, text: str) -> set[str]:
    """The files of the repository, outside docs/, that a page links to."""
    targets = {_target(path, link[2]) for link in _LINK.finditer(text)}
    return {target for target in targets if target and not target.startswith("docs/")}


def _target(here: str, path: str) -> str | None:
    """A link's target from the root of the repository; None if it leads elsewhere."""
    if "://" in path or path.startswith(("mailto:", "/")):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
    return None if target.startswith("..") else target


def _page_of(target: str) -> str:
    return target if target.endswith(".md") else f"{target}.md"


def _shown(target: str) -> str:
    text = (ROOT / target).read_text(encoding="utf-8")
    if not target.endswith(".md"):
        fence = "`" * 5
        text = f"# {target}\n\n{fence}{_LANGUAGES.get(Path(target).suffix, 'text')}\n{text}\n{fence}\n"
    return f"---\nsearch:\n  exclude: true\n---\n\n{text}"
