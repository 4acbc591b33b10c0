"""What people want of topics: wishes are written to etcd, and it is said whether they are in force.

A leader accepts wishes (engine.acceptor). Where none runs yet, whoever writes a wish accepts it in the same
transaction, so that topics work before the first node does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from engine import names
from engine.errors import EvenlaneError, InvalidTopic, UnknownProject
from engine.facts import Facts, agree
from quota.topic import TopicError, accept, complete, decode_accepted, encode, merge, parse_wish
from ring.coordination import Absent, Delete, Listing, ModifiedAt, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from quota.topic import Accepted, Topic
    from ring.coordination import Compare, Coordination, KeyValue, Op

T = TypeVar("T")

WAIT_S = 2.0  # for the leader
_TRIES = 20  # when others write the same topic
_AT_ONCE = 40  # topics in a transaction: etcd takes 128 comparisons and operations
_BEFORE_ANY = 1  # a revision that no wish has: the first leader to come judges the wish itself


@dataclass(frozen=True, slots=True)
class Standing:
    """How a project's topic stands. `problem` says why the wish can't be accepted."""

    project: str
    wish: Mapping[str, Any] | None
    wanted: Topic | None  # the wish with its defaults
    in_force: Accepted | None
    problem: str | None = None

    @property
    def accepted(self) -> bool:
        if self.problem is not None or self.in_force is None:
            return False
        return self.in_force.topic.state == "draining" if self.wish is None else self.wanted == self.in_force.topic

    def document(self) -> dict[str, Any]:
        in_force = None if self.in_force is None else msgspec.json.decode(encode(self.in_force))
        wish = None if self.wish is None else msgspec.to_builtins(dict(self.wish))
        return {
            "project": self.project,
            "accepted": self.accepted,
            "problem": self.problem,
            "wish": wish,
            "in_force": in_force,
        }


class Wishes:
    """Any call may raise CoordinationError; for a wrong name InvalidName, for a wrong topic InvalidTopic."""

    def __init__(self, coordination: Coordination, env: str, facts: Facts) -> None:
        self._coordination, self._env, self._facts = coordination, env, facts
        self._leader = names.key(env, "leader")

    async def get(self, project: str) -> Standing:
        """Raises UnknownProject."""
        names.check_project(project)
        wish, accepted = await self._read(project)
        if wish is None and accepted is None:
            raise self._unknown(project)
        return self._standing(project, wish, accepted)

    async def all(self) -> list[Standing]:
        """All, by name."""
        wishes = await self._under("topics")
        accepted = await self._under("accepted")
        return [
            self._standing(project, wishes.get(project), accepted.get(project))
            for project in sorted({*wishes, *accepted})
        ]

    async def change(self, project: str, changes: Mapping[str, object], *, known: bool = False) -> Standing:
        """Change the fields named (None: the default again) and wait for the leader, 2 s at the most.

        Raises UnknownProject if the topic has to be `known` and isn't.
        """
        names.check_project(project)
        for _ in range(_TRIES):
            wish, accepted = await self._read(project)
            if known and wish is None:
                raise self._unknown(project)
            raw = _checked(project, partial(merge, wish.value if wish else None, changes))
            if await self._write({project: raw}, {project: wish}, {project: accepted}):
                [standing] = await self._awaited([project])
                return standing
        raise _contended(project)

    async def is_unordered(self, project: str) -> bool:
        """Whether the project has a topic in force that isn't ordered."""
        before = _decoded((await self._read(project))[1])
        return before is not None and not before.topic.ordered

    async def moves_keys(self, project: str, changes: Mapping[str, object]) -> bool:
        """Whether this change of an ordered topic sends keys to other groups than those where their messages may wait:
        only as it comes back from draining (docs/messages.md).
        """
        wish, accepted = await self._read(project)
        before = _decoded(accepted)
        if before is None or not before.topic.ordered:
            return False
        raw = _checked(project, partial(merge, wish.value if wish else None, changes))
        after = self._complete(project, raw, before)
        return (after.groups, after.spread) != (before.active, before.topic.spread)

    async def replace(self, wishes: Mapping[str, bytes]) -> list[Standing]:
        """Write these wishes whatever stood there; all are checked before any is written."""
        for project, raw in wishes.items():
            names.check_project(project)
            self._complete(project, raw)
        projects = list(wishes)
        for start in range(0, len(projects), _AT_ONCE):
            await self._replace_part({project: wishes[project] for project in projects[start : start + _AT_ONCE]})
        return await self._awaited(projects)

    async def delete(self, project: str) -> Standing:
        """Take the wish away: its topic drains. Raises UnknownProject."""
        names.check_project(project)
        for _ in range(_TRIES):
            wish, accepted = await self._read(project)
            if wish is None:
                raise self._unknown(project)
            if await self._write({project: None}, {project: wish}, {project: accepted}):
                if accepted is None:
                    return Standing(project, None, None, None)
                [standing] = await self._awaited([project])
                return standing
        raise _contended(project)

    async def _replace_part(self, part: Mapping[str, bytes]) -> None:
        for _ in range(_TRIES):
            found = {project: await self._read(project) for project in part}
            wishes = {project: wish for project, (wish, _accepted) in found.items()}
            accepted = {project: was for project, (_wish, was) in found.items()}
            if await self._write(part, wishes, accepted):
                return
        raise _contended(", ".join(part))

    async def _write(
        self,
        changed: Mapping[str, bytes | None],
        wishes: Mapping[str, KeyValue | None],
        accepted: Mapping[str, KeyValue | None],
    ) -> bool:
        """One transaction, if nothing of this has changed since it was read; whether it was done."""
        compare = [self._as_read("topics", project, wishes[project]) for project in changed]
        then: list[Op] = []
        for project, raw in changed.items():
            key = names.key(self._env, "topics", project)
            then.append(Delete(key) if raw is None else Put(key, raw))
        published = self._accepted_here(changed, accepted)
        if await self._coordination.get(self._leader) is None:
            compare += [Absent(self._leader)]
            compare += [self._as_read("accepted", project, accepted[project]) for project in changed]
            then += published
        return (await self._coordination.txn(compare, then)).succeeded

    def _accepted_here(self, changed: Mapping[str, bytes | None], accepted: Mapping[str, KeyValue | None]) -> list[Op]:
        """What a leader would publish. Raises InvalidTopic."""
        published: list[Op] = []
        for project, raw in changed.items():
            before = _decoded(accepted[project])
            if raw is not None:
                now = accept(self._complete(project, raw, before), _BEFORE_ANY, before)
            elif before is not None:
                now = replace(before, topic=replace(before.topic, state="draining"))
            else:
                continue
            published.append(Put(names.key(self._env, "accepted", project), encode(now)))
        return published

    async def _awaited(self, projects: Sequence[str]) -> list[Standing]:
        """As soon as all are accepted, or as they stand when the leader had its time."""
        standings = {project: await self._now(project) for project in projects}
        waiting = {project for project, standing in standings.items() if not standing.accepted}
        if not waiting:
            return list(standings.values())
        watch = self._coordination.watch(names.key(self._env, "accepted", ""))
        try:
            async with asyncio.timeout(WAIT_S):
                async for told in watch:
                    items = told.items if isinstance(told, Listing) else (told.item,)
                    for project in {item.key.rpartition("/")[2] for item in items} & waiting:
                        standings[project] = await self._now(project)
                        if standings[project].accepted:
                            waiting.discard(project)
                    if not waiting:
                        break
        except TimeoutError:
            pass
        finally:
            await watch.aclose()
        return list(standings.values())

    async def _now(self, project: str) -> Standing:
        return self._standing(project, *await self._read(project))

    async def _read(self, project: str) -> tuple[KeyValue | None, KeyValue | None]:
        wish = await self._coordination.get(names.key(self._env, "topics", project))
        return wish, await self._coordination.get(names.key(self._env, "accepted", project))

    async def _under(self, kind: str) -> dict[str, KeyValue]:
        prefix = names.key(self._env, kind, "")
        items: Iterable[KeyValue] = (await self._coordination.list(prefix)).items
        return {item.key.removeprefix(prefix): item for item in items}

    def _as_read(self, kind: str, project: str, found: KeyValue | None) -> Compare:
        key = names.key(self._env, kind, project)
        return Absent(key) if found is None else ModifiedAt(key, found.mod_revision)

    def _standing(self, project: str, wish: KeyValue | None, accepted: KeyValue | None) -> Standing:
        in_force = _decoded(accepted)
        if wish is None:
            return Standing(project, None, None, in_force)
        try:
            parsed = parse_wish(wish.value)
            return Standing(project, parsed.given, complete(parsed, self._facts, in_force), in_force)
        except TopicError as error:
            return Standing(project, {}, None, in_force, str(error))

    def _complete(self, project: str, raw: bytes, before: Accepted | None = None) -> Topic:
        return _checked(project, lambda: complete(parse_wish(raw), self._facts, before))

    def _unknown(self, project: str) -> UnknownProject:
        return UnknownProject(
            f"project {project!r} has no topic in environment {self._env!r}: "
            f"`evenlane topics set {project} --qps 100 --env {self._env}` makes one"
        )


async def known_facts(coordination: Coordination, env: str) -> Facts:
    """The environment's facts; the defaults if nobody has agreed on any yet, without agreeing on them."""
    if await coordination.get(names.key(env, "settings")) is None:
        return Facts()
    return await agree(coordination, env, {})


def _checked(project: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except TopicError as error:
        raise InvalidTopic(f"topic {project}: {error}") from None


def _decoded(accepted: KeyValue | None) -> Accepted | None:
    """A value that can't be read counts as none, as for the leader."""
    try:
        return None if accepted is None else decode_accepted(accepted.value)
    except TopicError:
        return None


def _contended(project: str) -> EvenlaneError:
    return EvenlaneError(f"topic {project}: others keep changing it at the same time: try again")
