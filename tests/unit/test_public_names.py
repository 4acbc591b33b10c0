"""The public names: everything that the reference names can be imported from `evenlane`."""

import inspect
import re
from pathlib import Path

import pytest

import evenlane
from evenlane.engine import errors

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def list_errors() -> set[str]:
    return {name for name, each in vars(errors).items() if inspect.isclass(each) and each.__module__ == errors.__name__}


@pytest.mark.parametrize("page", ["python-api.md", "errors.md"])
def test_each_class_of_the_reference_is_importable(page):
    text = (REFERENCE / page).read_text()
    named = set(re.findall(r"`([A-Z]\w+)`|^## ([A-Z]\w+)$", text, re.MULTILINE))
    classes = {name for pair in named for name in pair if name} - {"Errors", "Exception", "Order"}
    assert {name for name in classes if not hasattr(evenlane, name)} == set()


def test_all_errors_are_public():
    assert list_errors() <= set(evenlane.__all__)


def test_all_names_are_there():
    assert {name for name in evenlane.__all__ if not hasattr(evenlane, name)} == set()
