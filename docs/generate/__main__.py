"""Writes the parts of pages that are generated from the code: `python docs/generate [PAGE...]`. Without a page, it
writes all. `--check` only compares.

A page has them between two marks, and prose around them. They are checked in, so that they can be read, linked and
reviewed without a build. `make docs` writes them; a test runs the check, so that they can't go stale.
"""

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = {
    "docs/reference/cli.md": "cli_part",
    "docs/reference/settings.md": "settings_part",
    "docs/reference/figures.md": "figures_part",
    "docs/reference/metrics.md": "metrics_part",
    "docs/reference/python-api.md": "api_part",
    "docs/reference/errors.md": "errors_part",
    "docs/contributing/code-map.md": "code_map_part",
    "ARCHITECTURE.md": "rooms_part",
}
BEGIN = "<!-- Made from the code by `python docs/generate`: change the code, not the text below. -->"
END = "<!-- End of what is made from the code. -->"


def main(*arguments: str) -> int:
    check = "--check" in arguments
    stale = 0
    names = [each for each in arguments if each != "--check"] or [*PARTS]
    if unknown := [name for name in names if name not in PARTS]:
        raise SystemExit(f"{unknown[0]} is none of the generated pages: {', '.join(PARTS)}")
    for name in names:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not (begin and end):
            raise SystemExit(f"{path} has no mark {END if begin else BEGIN}")
        new = f"{before}{BEGIN}\n\n{import_module(PARTS[name]).made().strip()}\n\n{END}{after}"
        if new != text:
            stale += 1
            if check:
                print(f"{name} isn't what the code says: run `python docs/generate`")
            else:
                path.write_text(new, encoding="utf-8")
                print(f"{name} written")
    return 1 if check and stale else 0


sys.exit(main(*sys.argv[1:]))
