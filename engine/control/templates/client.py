"""Client for templates: `evenlane topics template`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from evenlane.engine.cluster.topics.template_cache import check_name, key
from evenlane.engine.control.templates.counter import CreatedTopicCounter
from evenlane.engine.control.topics.spec_writer import SpecWriter
from evenlane.engine.errors import EvenlaneError, InvalidName, InvalidTopic, hint
from evenlane.quota.topics.template import merge_template, parse_template
from evenlane.quota.topics.topic import TopicError, parse_spec
from evenlane.ring.coordination.ports import Absent, ModifiedAt, PutKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.quota.topics.template import Template
    from evenlane.ring.coordination.ports import Coordination, KeyValue

_TRIES = 20  # while others write the same template


class TemplateStatus(NamedTuple):
    """A template and its state. `template` is None if it can't be read; `problem` says why it creates no topics."""

    name: str
    template: Template | None
    made: int
    problem: str | None

    def document(self) -> dict[str, Any]:
        found = self.template
        topic = None if found is None else msgspec.to_builtins(dict(parse_spec(found.topic).given))
        return {
            "name": self.name,
            "match": None if found is None else found.match,
            "limit": None if found is None else found.limit,
            "made": self.made,
            "problem": self.problem,
            "topic": topic,
        }


class TemplateClient:
    """Reads and changes templates. Each call may raise CoordinationError, and InvalidName for an invalid name."""

    def __init__(self, coordination: Coordination, env: str, cluster_config: ClusterConfig) -> None:
        self._coordination, self._env, self._cluster_config = coordination, env, cluster_config
        self._counter = CreatedTopicCounter(coordination, env)

    async def change(self, name: str, fields: Mapping[str, object], topic: Mapping[str, object]) -> TemplateStatus:
        """Change the named fields. Raises InvalidTopic."""
        place = key(self._env, check_name(name))
        for _ in range(_TRIES):
            found = await self._coordination.get(place)
            try:
                raw = merge_template(name, None if found is None else found.value, fields, topic)
                problem = self._unfit(parse_template(name, raw))
            except TopicError as error:
                raise InvalidTopic(f"template {name}: {error}") from None
            if problem is not None:
                raise InvalidTopic(f"template {name}: {problem}")
            same = Absent(place) if found is None else ModifiedAt(place, found.mod_revision)
            if (await self._coordination.txn([same], [PutKey(place, raw)])).succeeded:
                return await self.get(name)
        raise EvenlaneError(f"template {name}: others keep changing it at the same time: try again")

    async def get(self, name: str) -> TemplateStatus:
        """Return one template. Raises EvenlaneError if it doesn't exist."""
        found = await self._coordination.get(key(self._env, check_name(name)))
        if found is None:
            raise self._none(name)
        return await self._build_status(name, found)

    async def all(self) -> list[TemplateStatus]:
        """Return all templates by name."""
        prefix = key(self._env, "")
        items = (await self._coordination.list(prefix)).items
        return [await self._build_status(item.key.removeprefix(prefix), item) for item in items]

    async def delete(self, name: str) -> None:
        """Delete a template. Topics created from it stay. Raises EvenlaneError if it doesn't exist."""
        if not await self._coordination.delete(key(self._env, check_name(name))):
            raise self._none(name)

    async def _build_status(self, name: str, found: KeyValue) -> TemplateStatus:
        try:
            template = parse_template(check_name(name), found.value)
        except (TopicError, InvalidName) as error:
            return TemplateStatus(name, None, 0, str(error))
        return TemplateStatus(name, template, await self._counter.recount(name), self._unfit(template))

    def _unfit(self, template: Template) -> str | None:
        """Return why this cluster can't carry out the template's topics, None if it can."""
        try:
            SpecWriter(self._coordination, self._env, self._cluster_config).complete_spec("?", template.topic, None)
        except InvalidTopic as error:
            return str(error).removeprefix("topic ?: ")
        return None

    def _none(self, name: str) -> EvenlaneError:
        return EvenlaneError(
            f"there is no template {name!r} in environment {self._env!r}:"
            f" {hint('topics template list', self._env)} lists the existing ones"
        )
