"""Warns of nodes whose handlers differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.ring.membership.handlers import explain_differences

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.ring.membership.records import NodeRecord

_log = structlog.get_logger(__name__)


class HandlerDifferences:
    """Logs each difference once.

    Invariant: `_nodes` has the records of the nodes that are alive, as far as they could be read.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, NodeRecord] = {}
        self._logged: str | None = None

    def update(self, changed: dict[str, NodeRecord], gone: Collection[str], *, whole: bool) -> None:
        """Note new records. `whole`: they are those of all nodes."""
        self._nodes = changed if whole else self._nodes | changed
        for name in gone:
            self._nodes.pop(name, None)
        found = explain_differences(self._nodes)
        if found != self._logged:
            self._logged = found
            if found is not None:
                _log.warning("the nodes' handlers differ", differences=found)
