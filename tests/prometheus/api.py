"""Client of Prometheus' HTTP API."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import aiohttp


class Series(NamedTuple):
    """A series of a result: its labels, without the metric's name, and its value."""

    labels: Mapping[str, str]
    value: float

    def __str__(self) -> str:
        inside = ",".join(f'{label}="{value}"' for label, value in sorted(self.labels.items()))
        return f"{{{inside}}} {self.value:g}"


class Refused(Exception):
    """Prometheus can't evaluate it."""


class Api:
    """`async with Api(url) as api:`. Instant queries are evaluated at `at`, unix seconds, if that is set."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/api/v1/"
        self.at: float | None = None

    async def __aenter__(self) -> Self:
        self._client = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def query(self, expr: str) -> list[Series]:
        """The value of an expression at this instant; a scalar is one series without labels."""
        at = {} if self.at is None else {"time": f"{self.at:.3f}"}
        answer = await self.get("query", query=expr, **at)
        if answer["resultType"] == "scalar":
            return [Series({}, float(answer["result"][1]))]
        return [Series(_labels(each["metric"]), float(each["value"][1])) for each in answer["result"]]

    async def value(self, expr: str) -> float | None:
        """The value of an expression with at most one series; None if it has none."""
        found = await self.query(expr)
        assert len(found) <= 1, f"{expr}: {len(found)} series instead of one"
        return found[0].value if found else None

    async def label_values(self, label: str, selector: str) -> set[str]:
        return {*await self.get(f"label/{label}/values", **{"match[]": selector})}

    async def get(self, path: str, **parameters: str) -> Any:
        """Return `data` of the answer. Raises Refused."""
        async with self._client.get(self._url + path, params=parameters) as response:
            answer = await response.json()
        if answer["status"] != "success":
            raise Refused(answer["error"])
        return answer["data"]


def _labels(metric: Mapping[str, str]) -> dict[str, str]:
    return {label: value for label, value in metric.items() if label != "__name__"}
