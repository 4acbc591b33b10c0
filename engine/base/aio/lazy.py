"""Parts that are made on first use, because what they import takes long and many processes never need it."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Lazy(Generic[T]):
    """One part. `make` gets the module named `module` once it is imported. `made` is the part, None until then."""

    def __init__(self, module: str, make: Callable[[Any], T]) -> None:
        self._module, self._make = module, make
        self._making = asyncio.Lock()
        self.made: T | None = None

    async def get(self) -> T:
        """The part, made at the first call. Raises what making it raises; the next call tries again."""
        async with self._making:
            if self.made is None:
                # In a thread: an import of a tenth of a second or more would hold the event loop up.
                self.made = self._make(await asyncio.to_thread(import_module, self._module))
            return self.made
