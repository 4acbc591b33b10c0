"""A part that is created once, on first use."""

import asyncio
import sys

import pytest

from evenlane.engine.base.aio.lazy import Lazy

RARE = "this"  # a module that no other code imports


async def test_first_call_imports_the_module_and_creates_the_part_once(capsys):
    sys.modules.pop(RARE, None)
    parts = []

    def make(module):
        parts.append(module.__name__)
        return object()

    lazy = Lazy(RARE, make)
    assert (None, False) == (lazy.made, RARE in sys.modules)
    made = await asyncio.gather(*(lazy.get() for _ in range(5)))
    assert ([RARE], {lazy.made}) == (parts, set(made))


async def test_failed_creation_is_repeated():
    outcomes = [ValueError("not yet"), "made"]

    def make(_module):
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    lazy = Lazy("json", make)
    with pytest.raises(ValueError, match="not yet"):
        await lazy.get()
    assert "made" == await lazy.get()
