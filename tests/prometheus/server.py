"""A real Prometheus on loopback that scrapes nodes each second. Like embedded servers, it can't outlive the tests."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from evenlane.engine.runtime.embedded import ports
from evenlane.engine.runtime.embedded.server import Server
from tests.dashboards.files import program

SCRAPE_S = 1
_ASKED_S = 5.0


class Prometheus(Server):
    """Prometheus, which scrapes `targets` (base addresses by node) and evaluates rule files."""

    kind = "prometheus"
    title = "Prometheus"

    def __init__(self, data_dir: Path, targets: Mapping[str, str], rules: Sequence[Path] = ()) -> None:
        super().__init__(data_dir)
        self._targets, self._rules = targets, rules
        self._program = program("prometheus")

    @property
    def url(self) -> str:
        return f"http://{ports.HOST}:{self.port}"

    def _command(self) -> list[str]:
        path = self.data_dir / "prometheus.yml"
        path.write_text(json.dumps(self._configuration()), encoding="utf-8")  # JSON is YAML, too
        return [
            self._program, f"--config.file={path}", f"--storage.tsdb.path={self._store}",
            f"--web.listen-address={ports.HOST}:{self.port}", "--log.level=warn",
        ]  # fmt: skip

    def _configuration(self) -> dict[str, object]:
        addresses = [urlsplit(address).netloc for address in self._targets.values()]
        every = f"{SCRAPE_S}s"
        return {
            "global": {
                "scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every,
                "external_labels": {"run": self.name},
            },
            "rule_files": [str(path) for path in self._rules],
            "scrape_configs": [{"job_name": "evenlane", "static_configs": [{"targets": addresses}]}],
        }  # fmt: skip

    async def _is_answering(self) -> bool:
        try:
            async with aiohttp.ClientSession() as client:
                if (await _got(client, f"{self.url}/-/ready"))[0] != 200:
                    return False
                return self.name in (await _got(client, f"{self.url}/api/v1/status/config"))[1]
        except aiohttp.ClientError as error:
            raise OSError(str(error)) from error


async def _got(client: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with asyncio.timeout(_ASKED_S), client.get(url) as response:
        return response.status, await response.text()
