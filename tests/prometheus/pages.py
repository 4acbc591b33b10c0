"""The nodes' metrics pages, as Prometheus and promtool read them."""

import asyncio
from collections.abc import Mapping

import aiohttp
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed

from evenlane.engine.telemetry import metric_names
from tests.dashboards.files import program
from tests.dashboards.values import series

_OPEN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"  # as Prometheus sends it


_ELSEWHERE = {metric_names.DESIRED_NODES, metric_names.SUBSCRIPTION_NODES}
"""Metrics of an environment with an autoscaler, or with named subscriptions."""


async def wrong_pages(bases: Mapping[str, str]) -> list[str]:
    """The errors in the pages: promtool reports none, OpenMetrics can be parsed, and each metric is there. The series
    that tests/dashboards/values assumes are on them, too.
    """
    wrongs, exported = [], set()
    async with aiohttp.ClientSession() as client:
        for node, base in bases.items():
            plain, kind = await _page(client, base, "text/plain")
            wrongs += [f"the page of {node}: {line}" for line in await _checked(plain)]
            wrongs += _wrong_names(node, plain) if kind.startswith("text/plain") else [f"{node} gave {kind}"]
            text, kind = await _page(client, base, _OPEN)
            families = list(parsed(text))
            if not kind.startswith("application/openmetrics-text") or not families:
                wrongs.append(f"the page of {node}: asked for OpenMetrics it gave {kind}")
            exported |= {(each.name, frozenset(each.labels)) for family in families for each in family.samples}
    assumed = {(name, labels) for name, labels in series.exported() if name not in _ELSEWHERE}
    return wrongs + [f"no page has {name} with the labels {sorted(labels)}" for name, labels in assumed - exported]


def _wrong_names(node: str, page: str) -> list[str]:
    """The page has all metrics that this environment needs, and no others."""
    expected = {
        value for name, value in vars(metric_names).items() if name.isupper() and str(value).startswith("evenlane_")
    } - _ELSEWHERE
    found = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE evenlane_")}
    return [f"the page of {node}: {name} is missing or unknown" for name in sorted(expected ^ found)]


async def _page(client: aiohttp.ClientSession, base: str, accept: str) -> tuple[str, str]:
    async with client.get(f"{base}/metrics", headers={"accept": accept}) as response:
        assert response.status == 200, await response.text()
        return await response.text(), response.headers["content-type"]


async def _checked(page: str) -> list[str]:
    """The lines of `promtool check metrics`; none if all is right."""
    process = await asyncio.create_subprocess_exec(
        program("promtool"), "check", "metrics",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate(page.encode())
    lines = output.decode().splitlines()
    return lines if lines or process.returncode == 0 else [f"promtool ended with {process.returncode}"]
