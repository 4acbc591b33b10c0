"""The totals of a run: what was acknowledged to devices, against what the database holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from examples.iot.database import connect
from examples.iot.messages import Unreadable, decode

_SHARES = {"p50": 0.5, "p99": 0.99, "longest": 1.0}


class _Reading(msgspec.Struct):
    """The fields of a device's data that count here."""

    id: str | None = None
    sent_at: float | None = None


@dataclass(frozen=True)
class Totals:
    """Figures of a run. Waits are seconds from the first sending to the database."""

    acknowledged: int
    stored: int
    missing: int
    """Acknowledged to a device, and neither stored nor refused."""
    handled_again: int
    """Handled more than once, and stored once."""
    refused: int
    waits: Sequence[float]

    def wait(self, share: float) -> float:
        """Return the wait that this share of the messages didn't exceed."""
        return self.waits[min(int(share * len(self.waits)), len(self.waits) - 1)] if self.waits else 0.0

    def text(self) -> str:
        waits = ", ".join(f"{name} {self.wait(share):.2f} s" for name, share in _SHARES.items())
        counts = {
            "acknowledged to devices": self.acknowledged,
            "stored in the database": self.stored,
            "missing": self.missing,
            "handled more than once": self.handled_again,
            "refused": self.refused,
        }
        lines = [f"{name:<24}{count:>8,}" for name, count in counts.items()]
        return "\n".join([*lines, f"from device to database: {waits}"])


def audit(path: Path, acknowledged: set[tuple[str, str]]) -> Totals:
    """Compare the devices' ledger, of projects and ids, with the database file."""
    connection = connect(path)
    try:
        rows = connection.execute("SELECT project, id, times, stored_at, body FROM data").fetchall()
        refused = [body for (body,) in connection.execute("SELECT body FROM refused")]
    finally:
        connection.close()
    stored = {(project, message_id) for project, message_id, *_ in rows}
    turned_away = {_read(body).id for body in refused}
    waits = sorted(stored_at - sent for *_, stored_at, body in rows if (sent := _read(body).sent_at) is not None)
    return Totals(
        acknowledged=len(acknowledged),
        stored=len(stored),
        missing=sum(each not in stored and each[1] not in turned_away for each in acknowledged),
        handled_again=sum(times > 1 for _, _, times, *_ in rows),
        refused=len(refused),
        waits=waits,
    )


def _read(body: bytes) -> _Reading:
    try:
        return decode(body, _Reading)
    except Unreadable:
        return _Reading()
