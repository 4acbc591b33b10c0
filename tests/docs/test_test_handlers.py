"""Each block of code of the page about tests works as pasted."""

import re
import subprocess
import sys
from os import environ

from tests.docs.terminal import ROOT

_BLOCK = re.compile(r'^```python title="(\S+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_INI = "[pytest]\nasyncio_mode = auto\n"


def test_the_tests_of_the_page_pass(tmp_path):
    page = (ROOT / "docs/how-to/test-handlers.md").read_text(encoding="utf-8")
    blocks = dict(_BLOCK.findall(page))
    assert page.count("```python") == len(blocks)
    for name, text in {**blocks, "pytest.ini": _INI}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    assert "6 passed" in run.stdout
