"""Identifiers of the product have none of the words that standard terms have replaced (docs/contributing/style.md)."""

import io
import re
import subprocess
import tokenize

import pytest

from tests.support import ROOT

_PRODUCT = ("dashboards", "engine", "evenlane", "priority", "quota", "ring", "spark")
_RETIRED = """
    acceptor anew beside damage damaged duties duty emptied giving handover heard letting looking making mended placing
    said stand stands strays taking tell telling told unobtrusive wish wishes
"""
_WORDS = _RETIRED.split()
_LOWER = "|".join(_WORDS)
_RETIRED_WORD = re.compile(
    rf"(?<![A-Za-z])(?:{_LOWER}|{_LOWER.upper()})(?![A-Za-z])|(?<![A-Z])(?:{_LOWER.title()})(?![a-z])"
)
_ON_THE_WIRE = frozenset({"anew"})  # a field of the message Shortage


def _find_retired(source):
    """Return the identifiers with a retired word. Words in comments and strings are no identifiers."""
    lower = source.lower()
    if not any(word in lower for word in _WORDS) or not _RETIRED_WORD.search(source):  # most files, without tokens
        return set()
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {each.string for each in tokens if each.type == tokenize.NAME and _RETIRED_WORD.search(each.string)}


def _files():
    patterns = [f"{folder}/*.py" for folder in _PRODUCT]
    found = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, check=True, text=True)
    return [path for each in found.stdout.split() if not (path := ROOT / each).is_symlink()]


@pytest.mark.source
def test_identifiers_have_no_retired_words():
    files = _files()
    assert len(files) > 400
    found = {(path, name) for path in files for name in _find_retired(path.read_text(encoding="utf-8"))}
    assert set() == {(str(path), name) for path, name in found if name not in _ON_THE_WIRE}
    assert {name for _, name in found} == _ON_THE_WIRE, "an allowed name that nothing uses any more"


def test_retired_words_are_found():
    """In each form of a name, and in identifiers only."""
    source = (
        "class Told: ...\n"
        "class IsTold: ...\n"
        "def is_told(HEARD, untold, STANDBY, log):\n"
        "    log('told', _said=1)  # damaged\n"
        "'''giving'''\n"
    )
    assert {"Told", "IsTold", "is_told", "HEARD", "_said"} == _find_retired(source)
