"""Runs the commands in docs/how-to/runbooks.md on real servers, as written; `pytest -s` shows a transcript."""

import asyncio
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp

from tests.ledger.world import ProcessWorld
from tests.support import ROOT
from tests.support.until import until

RUNBOOKS = ROOT / "docs/how-to/runbooks.md"
_EVENLANE = f"{sys.executable} -c 'from evenlane.engine.cli.main import main; main()'"
_ETCDCTL = Path(sys.executable).with_name("etcdctl")


def section(alert: str) -> str:
    pieces = re.split(r"^## (\w+)$", RUNBOOKS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))[alert]


class Runbook:
    """One section, carried out in `world`."""

    def __init__(self, world: ProcessWorld, alert: str) -> None:
        self._world, self._text = world, section(alert)
        self._seen: dict[str, list[str]] = {}  # metric -> its last lines
        print(f"\n## {alert}\n")  # noqa: T201

    async def run(self, line: str, **instead: object) -> tuple[int, str]:
        """Run a line of the section. `instead` replaces words in it. Return exit code and output."""
        line, code, out = await self._run(line, instead)
        print(f"$ {line}\n{out}(exit code {code})\n")  # noqa: T201
        return code, out

    async def _run(self, line: str, instead: dict[str, object]) -> tuple[str, int, str]:
        assert f"`{line}`" in self._text.replace("\n", " "), f"the section doesn't say {line!r}"
        for word, value in instead.items():
            assert word in line
            line = line.replace(word, str(value))
        programs = {"evenlane": _EVENLANE, "etcdctl": str(_ETCDCTL), "curl": "curl -sS -m 5"}
        program, _, rest = line.partition(" ")
        process = await asyncio.create_subprocess_shell(
            f"{programs[program]} {rest}", env=self._environment(), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        raw, _ = await asyncio.wait_for(process.communicate(), 60)
        out = raw.decode()
        assert process.returncode is not None
        return line, process.returncode, out

    async def prints(self, line: str, *words: str, code: int = 0, **instead: object) -> str:
        """Run the line until its output contains all of these words. Only its last output is shown."""
        done, ended, out = line, -1, ""

        async def is_printed() -> bool:
            nonlocal done, ended, out
            done, ended, out = await self._run(line, instead)
            return ended == code and all(word in out for word in words)

        try:
            await until(is_printed, 40, f"{line!r} to print {words}")
        finally:
            print(f"$ {done}\n{out}(exit code {ended})\n")  # noqa: T201
        return out

    async def metric(self, base: str, name: str) -> float:
        """The sum of a metric's samples at a node, -1 if there are none. `name` may end with a first label."""
        async with aiohttp.ClientSession() as session, session.get(f"{base}/metrics") as answer:
            text = await answer.text()
        found = [line for line in text.splitlines() if re.match(rf"{re.escape(name)}[ {{,}}]", line)]
        self._seen[name] = found
        return sum(float(line.rpartition(" ")[2]) for line in found) if found else -1

    async def shows(self, base: str, name: str, right: Callable[[float], bool], within_s: float = 40) -> None:
        """Wait until the alert's metric has a `right` value."""

        async def is_right() -> bool:
            return right(await self.metric(base, name))

        try:
            await until(is_right, within_s, f"{name} to be right")
        finally:
            print(*(f"  {line}" for line in self._seen.get(name, [])[:6]), sep="\n")  # noqa: T201

    async def ready(self, base: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"{base}/readyz") as answer:
            text = await answer.text()
        return answer.status, text.strip()

    async def wait_for_readyz(self, base: str, status: int, within_s: float = 20) -> None:
        """Wait until `/readyz` has this status."""
        found: tuple[int, str] = (0, "")

        async def has_status() -> bool:
            nonlocal found
            found = await self.ready(base)
            return found[0] == status

        try:
            await until(has_status, within_s, f"/readyz to answer {status}")
        finally:
            print("  /readyz:", *found)  # noqa: T201

    def logged(self, node: str, *texts: str) -> bool:
        """Whether a node's log contains each of these texts. Shows the lines."""
        [log] = [each.log for each in self._world.nodes if each.name == node][-1:]
        lines = log.read_text(errors="replace").splitlines()
        found = [[line for line in lines if text in line] for text in texts]
        for each in found:
            for line in each[:2]:
                print(f"  {node}: {line[:300]}")  # noqa: T201
        return all(found)

    def _environment(self) -> dict[str, str]:
        settings = self._world.settings
        own = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")}
        reported = {"EVENLANE_NATS": settings.nats[0], "EVENLANE_ETCD": settings.etcd[0]}
        return own | reported | {"PYTHONPATH": str(ROOT), "ETCDCTL_ENDPOINTS": settings.etcd[0], "NO_COLOR": "1"}
