"""Templates of an environment, watched once a project without a topic appears."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, NamedTuple

import structlog

from evenlane.engine.base import names
from evenlane.engine.cluster.prefix_watch import PrefixWatch
from evenlane.engine.core.message.error_text import refusal
from evenlane.engine.errors import InvalidName
from evenlane.quota.topics.template import best, parse_template
from evenlane.quota.topics.topic import TopicError

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.cluster.prefix_watch import WatchUpdate
    from evenlane.quota.topics.template import Template
    from evenlane.ring.coordination.ports import Coordination, KeyValue

_log = structlog.get_logger(__name__)

_KIND = "templates"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def check_name(name: str) -> str:
    """Return the name of a template. Raises InvalidName."""
    if _NAME.fullmatch(name) is None:
        shown = repr(name) if len(name) <= 80 else f"{name[:77]!r}..."
        raise InvalidName(
            f"template {shown} is not valid: 1 to 64 letters, digits, '_' or '-', the first a letter or digit"
        )
    return name


def key(env: str, name: str) -> str:
    """Return the etcd key of a template."""
    return names.key(env, _KIND, name)


class StoredTemplate(NamedTuple):
    """A template and its mod-revision."""

    template: Template
    revision: int


class TemplateCache:
    """Cache of all templates. Doesn't access etcd before `open`.

    `on_change()` is called after templates have changed. An invalid value is skipped with one warning. Invariant: a
    name is in `_templates` or in `_bad`, never in both.
    """

    def __init__(self, coordination: Coordination, env: str) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._coordination, self._env = coordination, env
        self._templates: dict[str, StoredTemplate] = {}
        self._bad: dict[str, int] = {}  # name -> mod-revision, so that each bad value is logged once
        self._following: asyncio.Task[None] | None = None
        self._listed = asyncio.Event()

    @property
    def is_listed(self) -> bool:
        """Whether all templates are known."""
        return self._listed.is_set()

    async def open(self) -> None:
        """Start following templates and wait until all are known. Raises CoordinationError if etcd doesn't answer."""
        if self.is_listed:
            return
        if self._following is None:
            await self._coordination.get(names.key(self._env, "settings"))  # a watch would wait silently for etcd
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="templates")
        await self._listed.wait()

    def best(self, project: str) -> StoredTemplate | None:
        """Return the best match for this project among the known templates."""
        template = best((found.template for found in self._templates.values()), project)
        return None if template is None else self._templates[template.name]

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        async with PrefixWatch(self._coordination, key(self._env, "")) as items:
            async for update in items:
                self._take(update)
                self._listed.set()
                self.on_change()

    def _take(self, update: WatchUpdate) -> None:
        gone = self._templates.keys() - update.changed.keys() if update.whole else update.gone
        for name in [*gone]:
            self._templates.pop(name, None)
            self._bad.pop(name, None)
        for name, item in update.changed.items():
            self._put(name, item)

    def _put(self, name: str, item: KeyValue) -> None:
        try:
            check_name(name)
            self._templates[name] = StoredTemplate(parse_template(name, item.value), item.mod_revision)
            self._bad.pop(name, None)
        except (TopicError, InvalidName) as error:
            self._templates.pop(name, None)
            if self._bad.get(name) != item.mod_revision:
                self._bad[name] = item.mod_revision
                _log.warning("a template is not valid and is passed over", key=item.key, reason=refusal(error))
