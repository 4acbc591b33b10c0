"""Fake nodes under a supervisor: their scripts, and records of their lives."""

import sys
from pathlib import Path

from evenlane.engine.cli.run.claims import ProcessClaims
from evenlane.engine.cli.run.supervisor import Supervisor
from tests.support import ROOT

FAKE = str(Path(__file__).with_name("fake_node.py"))
PROGRAM = (sys.executable, "-P", FAKE)


class Fakes:
    """Nodes n-0, n-1, ..., each with a script for its lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.revoked: list[tuple[str, ProcessClaims]] = []
        self.environ = {"FAKE_NODES": str(folder), "PYTHONPATH": str(ROOT)}

    def __call__(self, *scripts: str, drain_grace_s: float = 10.0) -> Supervisor:
        self.write(*scripts)
        return Supervisor("n", len(scripts), [], environ=self.environ, drain_grace_s=drain_grace_s, revoke=self._revoke)

    async def _revoke(self, node: str, claims: ProcessClaims) -> None:
        self.revoked.append((node, claims))

    def write(self, *scripts: str) -> None:
        for number, script in enumerate(scripts):
            (self.folder / f"n-{number}").write_text(script)

    def pids(self, node: str = "*") -> list[int]:
        return [int(line) for path in self.folder.glob(f"{node}.lives") for line in path.read_text().splitlines()]

    def signals(self) -> list[str]:
        return [line for path in self.folder.glob("*.signals") for line in path.read_text().splitlines()]
