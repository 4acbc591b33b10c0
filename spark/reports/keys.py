"""Keys of the rows of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

QUEUE = ("partition", "project", "group", "priority")
RUN = ("node", "run")
EPOCH = (*RUN, *QUEUE, "epoch")
"""Key of a queue's epoch. It belongs to one run of one node: equal numbers in different runs belong to different
environments, of which the later one was recreated.
"""
PARTITION_EPOCH = (*RUN, "partition", "epoch")
"""Key of a partition's epoch."""
ONE_RECORD = ("sequence", "stored")
"""Key of a record: a recreated stream has the same sequences at other times."""
LINE = ("project", "priority")
WINDOW = (*LINE, "window_start")
"""Key of figures; the priority may be `flows.WHOLE`."""


def number_queues(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `queue`, a number for each queue's epoch: it takes less time to group by than the key."""
    return rows.join(rows.select(EPOCH).unique(maintain_order=True).with_row_index("queue"), on=EPOCH)
