"""docs/reference/errors.md: every error class, with its base class."""

from __future__ import annotations

import inspect

from markup import table

from evenlane.engine import errors


def made() -> str:
    found = [each for each in vars(errors).values() if inspect.isclass(each) and each.__module__ == errors.__name__]
    rows = (
        (
            f"`{each.__name__}`",
            f"`{each.__bases__[0].__name__}`",
            inspect.cleandoc(each.__doc__ or ""),
        )
        for each in found
    )
    return table(("error", "is a", "meaning"), rows)
