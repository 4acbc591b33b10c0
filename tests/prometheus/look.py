"""Polls an expression of a dashboard until its result is as expected."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tests.prometheus import expressions
from tests.prometheus.api import Api, Series
from tests.prometheus.proof import variables
from tests.support.until import until

Shown = Sequence[Series]
_POLL_S = 0.1


class Look:
    """Polls panels, annotations and rules by place."""

    def __init__(self, api: Api) -> None:
        self._api = api
        every = (*expressions.panels(), *expressions.annotations(), *expressions.rules())
        self._known = {each.place: each.asked(variables(each.place.partition(" / ")[0])) for each in every}

    async def at(self, place: str) -> Shown:
        return await self._api.query(self._known[place])

    async def shows(self, place: str, is_so: Callable[[Shown], Any], within_s: float = 60.0) -> Shown:
        """Wait for a result for which `is_so` is true; return it."""
        came: Shown = ()

        async def asked() -> bool:
            nonlocal came
            came = await self.at(place)
            if is_so(came):
                return True
            await asyncio.sleep(_POLL_S)
            return False

        try:
            await until(asked, within_s, place)
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows: {'; '.join(map(str, came)) or 'nothing'}") from None
        return came


def by(label: str, found: Shown) -> dict[str, float]:
    return {each.labels[label]: each.value for each in found}


def value(found: Shown) -> float | None:
    """The value of the only series, None if there is none."""
    return found[0].value if len(found) == 1 else None
