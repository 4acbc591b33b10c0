"""Writes specs to etcd, each with its author, in one transaction that requires everything it read to be unchanged.

A leader accepts specs (evenlane.engine.control.leader.topic_controller). While there is no leader, the writer accepts
its spec in the same transaction, so that topics work before the first node starts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.control.topics.accepted_writer import now, ops
from evenlane.engine.control.topics.history import ChangeAuthor, author_put, next_numbers
from evenlane.engine.control.topics.reconcile import TopicChange
from evenlane.engine.control.topics.status import make_checked, read_status, try_decode
from evenlane.quota.topics.topic import accept, complete, delete, parse_spec, would_move_keys
from evenlane.ring.coordination.ports import Absent, DeleteKey, ModifiedAt, PutKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.quota.topics.topic import Accepted, Topic
    from evenlane.ring.coordination.ports import Compare, Coordination, KeyValue, Op

AT_ONCE = 30  # topics per transaction: four operations each, and etcd takes 128
_BEFORE_ANY = 1  # a revision that no spec has, so that the first leader reconciles the spec itself


class SpecChange(NamedTuple):
    """A spec to write (None: delete), and the values in etcd on which the change is based."""

    project: str
    raw: bytes | None
    spec: KeyValue | None
    accepted: KeyValue | None


class WriteResult(NamedTuple):
    """Revision of a write, and whether the same transaction accepted it."""

    revision: int
    in_effect: bool


class SpecWriter:
    """Writes specs. `by` is recorded as their author, none if it is None."""

    def __init__(
        self, coordination: Coordination, env: str, cluster_config: ClusterConfig, by: str | None = None
    ) -> None:
        self._coordination, self._env, self._cluster_config, self._by = coordination, env, cluster_config, by

    async def write(
        self, intended: Sequence[SpecChange], via: str, *, only_if: Sequence[Compare] = (), also: Sequence[Op] = ()
    ) -> WriteResult | None:
        """Write specs of at most AT_ONCE projects, all or none, together with the operations `also`. Returns None if
        a value has changed meanwhile or a condition in `only_if` fails.

        Raises InvalidTopic, CoordinationError.
        """
        compare = [*only_if, *(self._as_read("topics", each.project, each.spec) for each in intended)]
        then = [*also, *(op for each in intended for op in self._ops(each, via))]
        for each in intended:
            self.check(each.project, each.raw, each.accepted)
        leader = names.key(self._env, "leader")
        nobody_leads = await self._coordination.get(leader) is None
        if nobody_leads:
            compare += [Absent(leader), *(self._as_read("accepted", each.project, each.accepted) for each in intended)]
            new = [each.project for each in intended if each.raw is not None and try_decode(each.accepted) is None]
            numbers = await next_numbers(self._coordination, self._env, new)
            then += [op for each in intended for op in self._build_ops(each, via, numbers.get(each.project, 0))]
        done = await self._coordination.txn(compare, then)
        return WriteResult(done.revision, nobody_leads) if done.succeeded else None

    def complete_spec(self, project: str, raw: bytes, before: Accepted | None) -> Topic:
        """Return the complete topic of a spec. Raises InvalidTopic."""
        return make_checked(project, partial(self._complete, raw, before))

    def check(self, project: str, raw: bytes | None, accepted: KeyValue | None) -> None:
        """Raise InvalidTopic if this spec can't be accepted after the present topic."""
        if raw is not None:
            self.complete_spec(project, raw, try_decode(accepted))

    def would_move_keys(self, intended: SpecChange) -> bool:
        """Whether keys of an ordered topic would move to other groups. Raises InvalidTopic for an unacceptable spec."""
        before = try_decode(intended.accepted)
        return intended.raw is not None and would_move_keys(
            before, self.complete_spec(intended.project, intended.raw, before)
        )

    def _complete(self, raw: bytes, before: Accepted | None) -> Topic:
        return complete(parse_spec(raw), self._cluster_config, before)

    def _author(self, each: SpecChange, via: str) -> ChangeAuthor | None:
        replaced = 0 if each.spec is None else each.spec.mod_revision
        return None if self._by is None else ChangeAuthor(self._by, via, replaced)

    def _ops(self, each: SpecChange, via: str) -> Iterator[Op]:
        key = names.key(self._env, "topics", each.project)
        yield DeleteKey(key) if each.raw is None else PutKey(key, each.raw)
        author = self._author(each, via)
        if author is not None:
            yield author_put(self._env, each.project, author)

    def _build_ops(self, each: SpecChange, via: str, first: int) -> list[Op]:
        """Return the operations that a leader would publish. `first` is the number of a new topic."""
        before = try_decode(each.accepted)
        if each.raw is not None:
            after = accept(self.complete_spec(each.project, each.raw, before), _BEFORE_ANY, before)
            after = after if before is not None else replace(after, number=first)
        elif before is not None:
            after = delete(before)
        else:
            return []
        author = self._author(each, via) if self._was_effective(each) else None
        return ops(self._env, TopicChange(each.project, before, after, 0), now(), author)

    def _was_effective(self, each: SpecChange) -> bool:
        """Whether the spec to change was accepted: otherwise part of the change is another author's."""
        found = read_status(each.project, each.spec, each.accepted, self._cluster_config)
        return found.is_accepted or (found.spec is None and found.in_effect is None)

    def _as_read(self, kind: str, project: str, found: KeyValue | None) -> Compare:
        key = names.key(self._env, kind, project)
        return Absent(key) if found is None else ModifiedAt(key, found.mod_revision)
