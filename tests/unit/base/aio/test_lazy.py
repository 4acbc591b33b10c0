"""A part that is made on first use: once, whoever calls first."""

import asyncio
import sys

import pytest

from evenlane.engine.base.aio.lazy import Lazy

RARE = "this"  # a module that nothing needs


async def test_the_module_is_imported_with_the_first_call_and_the_part_is_made_once(capsys):
    sys.modules.pop(RARE, None)
    parts = []

    def make(module):
        parts.append(module.__name__)
        return object()

    lazy = Lazy(RARE, make)
    assert (None, False) == (lazy.made, RARE in sys.modules)
    made = await asyncio.gather(*(lazy.get() for _ in range(5)))
    assert ([RARE], {lazy.made}) == (parts, set(made))


async def test_a_failure_is_tried_again():
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
