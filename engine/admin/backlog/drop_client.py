"""Client of drop requests: sends one request to the nodes that own partitions, and gathers their progress until done.

A drop may take a while, so a node reports its progress every second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from evenlane.engine.admin.scatter import scatter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evenlane.engine.core.request_bus import RequestBus


class DropTarget(msgspec.Struct, frozen=True):
    """One message. `at` is its time of arrival, which distinguishes it from another message with its sequence."""

    kind: str
    partition: int
    sequence: int
    at: int


class DropRequest(msgspec.Struct):
    """Request to drop a project's backlog, of one priority if given; or to drop only these `targets`."""

    priority: str | None = None
    targets: list[DropTarget] | None = None


class DropProgress(msgspec.Struct):
    """A node's progress. `partitions` are those that were completed, once it is `done`. `busy` counts messages that
    were being handled (of the whole project, or of the targets); `gone` counts targets that are settled or missing.
    """

    node: str
    done: bool = False
    dropped: int = 0
    busy: int = 0
    gone: int = 0
    partitions: list[int] = []
    problem: str = ""


def subject(cluster: str, project: str) -> str:
    """Return the subject of drop requests for a project; `*` for all projects."""
    return f"ask.{cluster}.drop.{project}"


async def gather(
    connection: RequestBus,
    cluster: str,
    project: str,
    ask: DropRequest,
    nodes: Iterable[str],
    silent_s: float,
    on_progress: Callable[[int], object] = lambda _dropped: None,
) -> dict[str, DropProgress]:
    """Request the drop; return the last report by node. Waits as long as some node reports every `silent_s` seconds.
    `on_progress` is called with the total of dropped messages. Raises Unreachable.
    """
    dropped: dict[str, int] = {}

    def on_report(report: DropProgress) -> None:
        dropped[report.node] = report.dropped
        on_progress(sum(dropped.values()))

    return await scatter(
        connection, subject(cluster, project), set(nodes), _read, silent_s,
        body=msgspec.json.encode(ask), is_final=lambda report: report.done, on_answer=on_report, is_per_answer=True,
    )  # fmt: skip


def _read(body: bytes) -> tuple[str, DropProgress]:
    report = msgspec.json.decode(body, type=DropProgress)
    return report.node, report
