"""Writes the parts of pages that are generated from the code: `python docs/generate`. `--check` only compares.

A page has them between two marks, and prose around them. They are checked in, so that they can be read, linked and
reviewed without a build. `make docs` writes them; a test runs the check, so that they can't go stale.
"""

import sys
from pathlib import Path

import api_part
import cli_part
import code_map_part
import errors_part
import metrics_part
import rooms_part
import settings_part

ROOT = Path(__file__).parents[2]
PARTS = {
    "docs/reference/cli.md": cli_part.made,
    "docs/reference/settings.md": settings_part.made,
    "docs/reference/metrics.md": metrics_part.made,
    "docs/reference/python-api.md": api_part.made,
    "docs/reference/errors.md": errors_part.made,
    "docs/contributing/code-map.md": code_map_part.made,
    "ARCHITECTURE.md": rooms_part.made,
}
BEGIN = "<!-- Made from the code by `python docs/generate`: change the code, not the text below. -->"
END = "<!-- End of what is made from the code. -->"


def main(*, check: bool) -> int:
    stale = 0
    for name, made in PARTS.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not (begin and end):
            raise SystemExit(f"{path} has no mark {END if begin else BEGIN}")
        new = f"{before}{BEGIN}\n\n{made().strip()}\n\n{END}{after}"
        if new != text:
            stale += 1
            if check:
                print(f"{name} isn't what the code says: run `python docs/generate`")
            else:
                path.write_text(new, encoding="utf-8")
                print(f"{name} written")
    return 1 if check and stale else 0


sys.exit(main(check="--check" in sys.argv[1:]))
