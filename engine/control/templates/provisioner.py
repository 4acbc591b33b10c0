"""Provisions a topic for a project that has none, from the best matching template."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import uniform
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.topics.template_cache import TemplateCache, key
from evenlane.engine.control.templates.counter import CreatedTopicCounter, format_author
from evenlane.engine.control.topics import wait
from evenlane.engine.control.topics.spec_writer import SpecChange, SpecWriter
from evenlane.engine.core.message.error_text import refusal
from evenlane.engine.errors import InvalidTopic, UnknownProject, hint
from evenlane.ring.coordination.ports import Absent, ModifiedAt

if TYPE_CHECKING:
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.topics.template_cache import StoredTemplate
    from evenlane.quota.topics.template import Template
    from evenlane.ring.coordination.ports import Coordination

_log = structlog.get_logger(__name__)

_PAUSE_S = 0.02  # at most, between two tries
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ProvisionerTuning:
    """Limits of the provisioner."""

    tries: int = 200
    """Limit on tries while other processes create topics from the same template."""
    full_s: float = 10.0
    """Seconds for which a template that has reached its limit isn't tried again."""
    timeout_s: float = wait.WAIT_S
    """Seconds for the leader to accept a topic."""


class TopicProvisioner:
    """Creates topics from templates. `via` names the cause in a topic's history. `template_cache` may be opened by
    others, and is not closed here.

    Invariant: an entry of `_full` or `_unfit` holds for one revision of its template.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        cluster_config: ClusterConfig,
        template_cache: TemplateCache,
        via: str,
        tuning: ProvisionerTuning = ProvisionerTuning(),
    ) -> None:
        self._tuning = tuning
        self._coordination, self._env, self._cluster_config, self._template_cache, self._via = (
            coordination,
            env,
            cluster_config,
            template_cache,
            via,
        )
        self._counter = CreatedTopicCounter(coordination, env)
        self._one = asyncio.Lock()  # otherwise tasks of this process would contend with each other
        self._full: dict[str, tuple[int, int]] = {}  # template -> its revision, time (ns) until which it isn't tried
        self._unfit: dict[str, int] = {}  # template -> its revision, so that it is logged once

    def is_hopeless(self, project: str) -> bool:
        """Whether the known templates rule out a topic for this project. Doesn't access etcd."""
        return self._template_cache.is_listed and self._template_cache.best(project) is None

    async def make(self, project: str) -> bool:
        """Create the project's topic, unless it has one, and wait until it is accepted. Returns False if no template
        matches.

        Raises InvalidName, CoordinationError; UnknownProject if the template has reached its limit.
        """
        names.check_project(project)
        await self._template_cache.open()
        async with self._one:
            for _ in range(self._tuning.tries):
                found = self._template_cache.best(project)
                if found is None or self._is_unfit(project, found):
                    return False
                revision = await self._write_spec(project, found)
                if revision is not None:
                    break
                await asyncio.sleep(uniform(0, _PAUSE_S))  # noqa: S311 - jitter, so that competing processes diverge
            else:
                return False
        if revision:
            await wait.wait_until_accepted(
                self._coordination, self._env, {project: revision}, timeout_s=self._tuning.timeout_s
            )
        return True

    async def _write_spec(self, project: str, found: StoredTemplate) -> int | None:
        """Write the spec. Returns its revision, 0 if it need not be waited for, None after a conflict."""
        template = found.template
        self._check_room(project, found)
        spec, accepted = await asyncio.gather(
            self._coordination.get(names.key(self._env, "topics", project)),
            self._coordination.get(names.key(self._env, "accepted", project)),
        )
        if accepted is not None:
            return 0
        if spec is not None:
            return spec.mod_revision
        made = await self._counter.read_count(template.name, template.limit)
        if made.topics >= template.limit:
            self._full[template.name] = found.revision, now_ns() + int(self._tuning.full_s * _SECOND)
            raise self._explain_refusal(project, template)
        same, raised = self._counter.build_increment(template.name, made)
        unchanged = ModifiedAt(key(self._env, template.name), found.revision)
        free = Absent(names.key(self._env, "accepted", project))
        writing = SpecWriter(self._coordination, self._env, self._cluster_config, format_author(template.name))
        intended = SpecChange(project, template.topic, None, None)
        done = await writing.write([intended], self._via, only_if=[unchanged, free, same], also=[raised])
        if done is None:
            return None
        _log.info("a topic is made", project=project, template=template.name)
        return 0 if done.in_effect else done.revision

    def _check_room(self, project: str, found: StoredTemplate) -> None:
        """Raise UnknownProject while the template is known to be full."""
        revision, until = self._full.get(found.template.name, (0, 0))
        if revision == found.revision and now_ns() < until:
            raise self._explain_refusal(project, found.template)

    def _explain_refusal(self, project: str, template: Template) -> UnknownProject:
        return UnknownProject(
            f"project {project!r} has no topic in environment {self._env!r}, and template {template.name!r} creates"
            f" none for it, as it has reached its limit of {template.limit:,} topics:"
            f" {hint(f'topics set {project} --qps 100', self._env)} creates one"
        )

    def _is_unfit(self, project: str, found: StoredTemplate) -> bool:
        """Whether this cluster can't carry out the template; logged once per revision."""
        template = found.template
        try:
            SpecWriter(self._coordination, self._env, self._cluster_config).complete_spec(project, template.topic, None)
        except InvalidTopic as error:
            if self._unfit.get(template.name) != found.revision:
                self._unfit[template.name] = found.revision
                _log.warning("a template is passed over", template=template.name, reason=refusal(error))
            return True
        return False
