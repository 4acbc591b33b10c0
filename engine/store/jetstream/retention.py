"""The retention of dead letters: the age limit of their stream. Lanes have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.durations import format_duration
from evenlane.engine.store.jetstream.api.values import StreamInfo
from evenlane.engine.store.refusals import check_retention

if TYPE_CHECKING:
    from evenlane.engine.store.jetstream.client.connection import Connection

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000


async def read_retention(connection: Connection, cluster: str) -> float:
    """The retention in seconds; 0: for ever. Raises ApiError, Disconnected, TimeoutError."""
    info = await connection.api_as(StreamInfo, f"STREAM.INFO.{names.dead_stream(cluster)}")
    return float(info.config.get("max_age", 0)) / _SECOND


async def keep(connection: Connection, cluster: str, seconds: float) -> None:
    """Set the retention in seconds. Raises Refused if it is shorter than the stream's duplicate window, and the errors
    of `read_retention`.
    """
    stream = names.dead_stream(cluster)
    config = (await connection.api_as(StreamInfo, f"STREAM.INFO.{stream}")).config
    age = check_retention(stream, seconds, config.get("duplicate_window", 0))
    await connection.api(f"STREAM.UPDATE.{stream}", config | {"max_age": age})


def compare(cluster: str, holds: float, configured: float) -> None:
    """Warn if the stream's retention differs from the one that this process would have created it with."""
    if int(holds * _SECOND) != int(configured * _SECOND):
        _log.warning(
            "dead letters are kept for another time than dead_letter_keep says: `evenlane dlq keep` changes it",
            stream=names.dead_stream(cluster), kept=format_duration(holds) if holds else "for ever",
            setting=format_duration(configured),
        )  # fmt: skip
