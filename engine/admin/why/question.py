"""A question why a project's messages wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.quota.topics.topic import Topic


@dataclass(frozen=True)
class Question:
    """A question, with the client's own knowledge. `deleted`: the topic was deleted. `unserved` counts the project's
    groups in partitions that no node serves. `silent` are the nodes that should have answered. `troubles` are sentences
    about nodes that can't do their work. `lost`: etcd has no topic of the project and has lost topics; `topic` is then
    the one that nodes still know. `paused_by` says who paused the topic, and when. `at` is in unix ns, `within` in
    seconds. `subscription` is empty for the unnamed one.
    """

    project: str
    env: str
    at: int
    priorities: Sequence[str]
    topic: Topic | None
    max_group_qps: float
    unserved: int = 0
    silent: Sequence[str] = ()
    only: str | None = None
    within: float | None = None
    deleted: bool = False
    troubles: Sequence[str] = ()
    lost: bool = False
    paused_by: str = ""
    subscription: str = ""
