"""The command's side of dropping: one question to the nodes that own something, and what they say until they are done.

A drop may take a while, so a node that is at it says so each second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from evenlane.engine.admin.scatter import scatter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evenlane.engine.core.ports import RequestBus


class DropTarget(msgspec.Struct, frozen=True):
    """One message; `at` is its time of arrival, by which it is told from another that got its sequence."""

    kind: str
    partition: int
    sequence: int
    at: int


class DropRequest(msgspec.Struct):
    """Drop all that waits of the project, of one priority if it is given; or these messages, whatever else waits."""

    priority: str | None = None
    targets: list[DropTarget] | None = None


class DropProgress(msgspec.Struct):
    """What a node says. `partitions` are those that it has gone through, once it is `done`; `busy` counts messages that
    were being handled (of the whole project's, or of the targets), `gone` targets that are settled or not there.
    """

    node: str
    done: bool = False
    dropped: int = 0
    busy: int = 0
    gone: int = 0
    partitions: list[int] = []
    problem: str = ""


def subject(env: str, project: str) -> str:
    """What is published to have something of a project dropped; `*` for all projects."""
    return f"ask.{env}.drop.{project}"


async def gather(
    connection: RequestBus,
    env: str,
    project: str,
    ask: DropRequest,
    nodes: Iterable[str],
    silent_s: float,
    tell: Callable[[int], object] = lambda _dropped: None,
) -> dict[str, DropProgress]:
    """The last report of each of these nodes that reported anything, by its id. Waits as long as any node reports
    something every `silent_s` seconds. `tell` gets how many messages they have dropped. Raises Unreachable.
    """
    dropped: dict[str, int] = {}

    def on_report(report: DropProgress) -> None:
        dropped[report.node] = report.dropped
        tell(sum(dropped.values()))

    return await scatter(
        connection, subject(env, project), set(nodes), _read, silent_s,
        body=msgspec.json.encode(ask), is_final=lambda report: report.done, on_answer=on_report, is_per_answer=True,
    )  # fmt: skip


def _read(body: bytes) -> tuple[str, DropProgress]:
    report = msgspec.json.decode(body, type=DropProgress)
    return report.node, report
