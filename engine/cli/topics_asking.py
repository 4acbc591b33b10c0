"""What the commands of `evenlane topics` share: how etcd is asked, and what is said of a change."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from engine.cli.frame import print_json
from engine.cli.options import Given, number
from engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.facts import Facts
    from engine.settings import Settings
    from engine.standing import Standing
    from engine.wishes import Wishes
    from ring.coordination import Coordination

T = TypeVar("T")

By = Annotated[
    str | None, typer.Option("--by", metavar="WHO", help="Who changes it, for the history; USER@HOST if left out.")
]
IfRevision = Annotated[
    int | None,
    typer.Option(
        "--if-revision", parser=number, metavar="N", help="Only if `topics get` still shows this revision (0: none)."
    ),
]


def whoever(by: str | None) -> str:
    """The one named, or the user of this process on this host."""
    if by is not None:
        return by
    import getpass
    import os
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have users without a name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def asked(given: Given, work: Callable[[Wishes], Awaitable[T]], *, by: str | None = None) -> T:
    """Do the work with a connection to etcd. `by` is who changes topics; None if the work only looks."""

    async def with_wishes(etcd: Coordination, settings: Settings, facts: Facts) -> T:
        from engine.wishes import Wishes

        return await work(Wishes(etcd, settings.env, facts, by))

    return connected(given, with_wishes, writes=by is not None)


def connected(
    given: Given, work: Callable[[Coordination, Settings, Facts], Awaitable[T]], *, writes: bool = False
) -> T:
    """Only what `writes` makes an environment that isn't there yet."""
    settings = given.load().settings
    from engine.cli.run import run_loop
    from engine.logs import setup

    setup(settings.log_format, settings.log_level)
    from engine import clients
    from engine.facts import agree
    from engine.wishes import known_facts

    async def ask() -> T:
        with clients.explained():
            etcd = clients.etcd(settings)
            try:
                facts = (
                    await agree(etcd, settings.env, clients.told_facts(settings))
                    if writes
                    else await known_facts(etcd, settings.env)
                )
                return await work(etcd, settings, facts)
            finally:
                await etcd.close()

    found: T = run_loop(ask())
    return found


def change(
    given: Given,
    project: str,
    changes: dict[str, object],
    *,
    via: str,
    by: str | None,
    if_revision: int | None,
    as_json: bool,
    known: bool = False,
) -> None:
    """Carry out one command that changes some fields of a topic, and say what came of it."""

    async def work(wishes: Wishes) -> Standing:
        if await wishes.moves_keys(project, changes, known=known):
            await _check_drained(given.load().settings, project)
        begins = changes.get("ordered") is True and await wishes.is_unordered(project)
        standing = await wishes.change(project, changes, known=known, if_revision=if_revision, via=via)
        if begins:
            await _note_what_waits(given.load().settings, project)
        return standing

    tell_change(asked(given, work, by=whoever(by)), as_json=as_json)


def tell_change(standing: Standing, *, as_json: bool) -> None:
    """Exit code 1 if the change is written and not in force: a put that counts on it would fail."""
    if as_json:
        print_json(standing.document())
    elif standing.wish is None:
        print(f"{standing.project}: deleted{_what_becomes(standing)}")  # noqa: T201
    elif standing.accepted and standing.in_force is not None:
        topic = standing.in_force.topic
        groups = f"{topic.groups} group{'' if topic.groups == 1 else 's'}"
        print(f"{standing.project}: {topic.qps:g} QPS in {groups}, {topic.state}, accepted")  # noqa: T201
    if not standing.accepted and (standing.in_force is not None or standing.wish is not None):
        raise EvenlaneError(_why_not(standing))


def note(standing: Standing) -> None:
    """On stderr, what a table doesn't show."""
    if not standing.accepted:
        print(f"note: {_why_not(standing)}", file=sys.stderr)  # noqa: T201
    elif standing.wish is None:
        print(f"note: {standing.project} was deleted{_what_becomes(standing)}", file=sys.stderr)  # noqa: T201


def _what_becomes(standing: Standing) -> str:
    if standing.in_force is None or not standing.accepted:
        return ""
    if standing.in_force.topic.state == "draining":
        return "; puts are refused, what waits is still handled, and the topic goes with the last message"
    return (
        "; puts are refused, and what waits is kept and paused:"
        f" `evenlane topics drain {standing.project}` has it handled,"
        f" `evenlane backlog purge {standing.project}` drops it"
    )


def _why_not(standing: Standing) -> str:
    if standing.problem is not None:
        return f"the wish of topic {standing.project} can't be accepted: {standing.problem}"
    return (
        f"the change of topic {standing.project} is written, but the leader has not accepted it: "
        f"`evenlane topics get {standing.project}` tells when it has"
    )


async def _check_drained(settings: Settings, project: str) -> None:
    """An ordered topic is about to get other groups. Raises EvenlaneError."""
    from engine.standing import not_drained

    if waiting := await count_waiting(settings, project):
        raise EvenlaneError(not_drained(project, waiting))


async def _note_what_waits(settings: Settings, project: str) -> None:
    """A topic has just become ordered."""
    if waiting := await count_waiting(settings, project):
        print(  # noqa: T201
            f"note: {waiting:,} messages of {project} wait from before it was ordered: if its groups have changed since"
            " they were put, those of a key may lie in two groups, each in an order of its own",
            file=sys.stderr,
        )


async def count_waiting(settings: Settings, project: str) -> int:
    """Messages that wait or are being handled. Raises EvenlaneError."""
    from engine.backlog.command import peek

    parts = (await peek(settings, project, None, 0))["priorities"]
    return sum(part["waiting"] + part["delayed"] for part in parts)
