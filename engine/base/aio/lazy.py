"""Creates parts on first use, as their imports take long and many processes never need them."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Lazy(Generic[T]):
    """A single part. `make` is called with the imported `module`. `made` is the part, None until then."""

    def __init__(self, module: str, make: Callable[[Any], T]) -> None:
        self._module, self._make = module, make
        self._lock = asyncio.Lock()
        self.made: T | None = None

    async def get(self) -> T:
        """Return the part, made by the first call. Raises the errors of making it; the next call tries again."""
        async with self._lock:
            if self.made is None:
                # in a thread, as an import of a tenth of a second or more would block the event loop
                self.made = self._make(await asyncio.to_thread(import_module, self._module))
            return self.made
