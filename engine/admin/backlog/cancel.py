"""Carries out `evenlane backlog cancel`: drops a message by its id, in one subscription or in all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.admin.backlog.delete_unowned import delete
from evenlane.engine.admin.backlog.drop_client import DropRequest, DropTarget
from evenlane.engine.admin.backlog.drop_rounds import DropTally, describe_rest, run_rounds
from evenlane.engine.admin.backlog.scan import iter_waiting, list_subjects, map_concurrently, views
from evenlane.engine.admin.backlog.settle_unowned import settle
from evenlane.engine.admin.session import describe_subscription, open_session
from evenlane.engine.base import names
from evenlane.engine.cluster.owners import read_handoffs
from evenlane.engine.core.wire.header_values import message_id
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from evenlane.engine.admin.backlog.scan import LaneView
    from evenlane.engine.admin.session import AdminSession
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.ports import Head
    from evenlane.engine.core.wire.queue_subjects import Subject


class CancelTarget(NamedTuple):
    """A message to cancel."""

    subject: Subject
    view: LaneView
    head: Head

    @property
    def target(self) -> DropTarget:
        lane = self.subject.lane
        return DropTarget(lane.kind, lane.partition, self.head.sequence, self.head.at)


class CancelOutcome(NamedTuple):
    """What became of the message in one subscription: how many with its id were dropped, or why it couldn't be dropped.
    If it has neither, it didn't wait there. `is_unknown`: nothing of the project is there.
    """

    messages: int = 0
    problem: str = ""
    is_unknown: bool = False


async def cancel(settings: Settings, project: str, given_id: str) -> dict[str, Any]:
    """Drop the message with this id, wherever it waits: for the subscription of the settings, or else for all of them.
    Returns the result in JSON types.

    Raises InvalidName, UnknownProject, Unreachable; EvenlaneError if the message waits for none of them, or couldn't be
    dropped for one.
    """
    names.check_id(given_id)
    ended: dict[str | None, CancelOutcome] = {}
    async with open_session(settings, project) as outside:
        ended[settings.subscription] = await _cancel(outside, given_id)
        others = await outside.list_subscriptions() if settings.subscription is None else []
    for name in others:
        ended[name] = await _cancel_in(replace(settings, subscription=name), project, given_id)
    if all(each.is_unknown for each in ended.values()):
        raise outside.unknown()
    if not any(each.messages for each in ended.values()) or any(each.problem for each in ended.values()):
        raise EvenlaneError(_explain(outside, given_id, ended))
    return {
        "project": project, "env": settings.env, "subscription": settings.subscription, "id": given_id,
        "cancelled": True, "messages": sum(each.messages for each in ended.values()),
        "subscriptions": [{"subscription": name, "messages": each.messages} for name, each in ended.items()],
    }  # fmt: skip


async def _cancel_in(settings: Settings, project: str, given_id: str) -> CancelOutcome:
    """As `_cancel`, in another subscription, which may be incomplete."""
    try:
        async with open_session(settings, project) as outside:
            return await _cancel(outside, given_id)
    except EvenlaneError as error:
        return CancelOutcome(problem=f"can't be cancelled: {error}")


async def _cancel(outside: AdminSession, given_id: str) -> CancelOutcome:
    found = await _find(outside, given_id)
    if found is None:
        return CancelOutcome(is_unknown=True)
    tally = DropTally({each.subject.lane.partition for each in found})

    async def alone(partition: int, *, shared: bool) -> None:
        mine = [each for each in found if each.subject.lane.partition == partition]
        await _cancel_unowned(outside, partition, mine, tally, shared=shared)

    await run_rounds(outside, tally, DropRequest(targets=[each.target for each in found]), alone)
    return CancelOutcome(tally.dropped, "" if tally.dropped else _find_problem(tally))


async def _find(outside: AdminSession, given_id: str) -> list[CancelTarget] | None:
    """Find all messages with this id that wait or are being handled: briefly, a message and its retry. Returns None if
    the project has neither messages nor a topic.
    """
    store, project = outside.store, outside.project
    subjects = await list_subjects(
        store, outside.cluster_config, project, outside.cluster_config.priorities, subscriber=outside.subscriber
    )
    if not subjects and outside.accepted is None:
        return None
    known = await views(store, subjects, outside.subscriber)
    given = f"{project}:{given_id}".encode()

    def is_it(stream: str, head: Head) -> bool:
        if given not in head.headers and b"\r\nNats-Msg-Id:" in head.headers:
            return False  # quick check that skips most messages without parsing their headers
        return message_id(project, stream, head.sequence, head.at, head.headers) == given_id

    async def one(subject: Subject) -> list[CancelTarget]:
        view, stream = known[subject.lane], names.stream(outside.cluster, subject.lane)
        pages = iter_waiting(store, subject, view)
        return [CancelTarget(subject, view, head) async for page in pages for head in page if is_it(stream, head)]

    return [found for some in await map_concurrently(subjects, one) for found in some]


async def _cancel_unowned(
    outside: AdminSession, partition: int, found: list[CancelTarget], tally: DropTally, *, shared: bool
) -> None:
    theirs = await read_handoffs(outside.etcd, outside.cluster, partition)
    for each_one in found:
        sequence = each_one.head.sequence
        if sequence in theirs[each_one.subject.lane.kind]:
            tally.busy["a previous owner"] = 1
            continue
        if shared:
            await settle(outside.store, each_one.view, [each_one.head])
        else:
            await delete(outside.store, each_one.view, [sequence])
        tally.by_command += 1


def _find_problem(tally: DropTally) -> str:
    """Return why the message still waits or is being handled; empty if it isn't there any more."""
    if tally.in_flight:
        where = ", ".join(sorted(node for node, count in tally.busy.items() if count))
        return f"is being handled by {where} and can't be cancelled any more"
    return f"was not cancelled: {describe_rest(tally)}" if tally.left else ""


def _explain(outside: AdminSession, given_id: str, ended: dict[str | None, CancelOutcome]) -> str:
    message = f"message {given_id!r} of {outside.project}"
    problems = {name: each.problem for name, each in ended.items() if each.problem}
    if len(ended) == 1 and problems:
        return f"{message} {problems[outside.settings.subscription]}"
    if problems:
        done = [describe_subscription(name) for name, each in ended.items() if each.messages]
        left = [f"for {describe_subscription(name)} it {problem}" for name, problem in problems.items()]
        return f"{message}: {'; '.join([*(['cancelled for ' + ', '.join(done)] if done else []), *left])}"
    where = f"in environment {outside.env!r}"
    if outside.settings.subscription is not None:
        where = f"for {describe_subscription(outside.settings.subscription)} {where}"
    return f"{message} isn't waiting {where}: it was handled, dropped or dead-lettered, or was never put"
