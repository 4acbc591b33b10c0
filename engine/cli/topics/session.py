"""Shared parts of the commands of `evenlane topics`: the connection to etcd, and the report of a change."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.options import CommonOptions, number
from evenlane.engine.cli.output import print_json
from evenlane.engine.cli.topics.fields import quota_words
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.admin.topics.change import Changed
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.control.topics.client import TopicClient
    from evenlane.engine.control.topics.status import TopicStatus
    from evenlane.ring.coordination.ports import Coordination

T = TypeVar("T")

By = Annotated[
    str | None,
    typer.Option("--by", metavar="WHO", help="Author of the change, for the history; USER@HOST if left out."),
]


def _revision(text: str) -> int:
    if (revision := number(text)) < 0:
        raise typer.BadParameter(f"a spec's revision must be at least 1, or 0 for none, not {revision}")
    return revision


IfRevision = Annotated[
    int | None,
    typer.Option(
        "--if-revision",
        parser=_revision,
        metavar="N",
        help="Change it only if `topics get` still shows this revision (0: none).",
    ),
]


def run_with_topics(given: CommonOptions, work: Callable[[TopicClient], Awaitable[T]], *, by: str | None = None) -> T:
    """Run the work with a topic client. `by` is the author of changes; None if the work only reads."""

    async def with_topic_client(etcd: Coordination, settings: Settings, cluster_config: ClusterConfig) -> T:
        from evenlane.engine.control.topics.client import TopicClient

        return await work(TopicClient(etcd, settings.env, cluster_config, by))

    return run_with_etcd(given, with_topic_client, writes=by is not None)


def run_with_etcd(
    given: CommonOptions, work: Callable[[Coordination, Settings, ClusterConfig], Awaitable[T]], *, writes: bool = False
) -> T:
    """Run the work with a connection to etcd. Only with `writes` is a missing environment created."""
    settings = given.load().settings
    from evenlane.engine.base.log_setup import setup
    from evenlane.engine.runtime.run_loop import run_loop

    setup(settings.log_format, settings.log_level)
    from evenlane.engine.cluster import connections
    from evenlane.engine.cluster.cluster_config import agree_cluster_config
    from evenlane.engine.control.topics.client import read_config_or_defaults

    async def ask() -> T:
        with connections.translate_errors():
            etcd = connections.etcd(settings)
            try:
                cluster_config = (
                    await agree_cluster_config(etcd, settings.env, connections.config_known_so_far(settings))
                    if writes
                    else await read_config_or_defaults(etcd, settings.env)
                )
                return await work(etcd, settings, cluster_config)
            finally:
                await etcd.close()

    found: T = run_loop(ask())
    return found


def change(
    given: CommonOptions,
    project: str,
    changes: dict[str, object],
    *,
    via: str,
    by: str | None,
    if_revision: int | None,
    as_json: bool,
    known: bool = False,
    subscription: str | None = None,
) -> None:
    """Run a command that changes fields of a topic, and report the result. The fields are those of one `subscription`
    if it is given.
    """
    from evenlane.engine.admin.topics.author import current_author

    named = current_author(by)

    async def work(etcd: Coordination, settings: Settings, cluster_config: ClusterConfig) -> Changed:
        from evenlane.engine.admin.topics.change import change_topic, check_quota_owner
        from evenlane.engine.control.topics.client import TopicClient

        topic_client = TopicClient(etcd, settings.env, cluster_config, named)
        if subscription is not None:
            await check_quota_owner(etcd, settings.env, topic_client, project, subscription)
        return await change_topic(
            topic_client, settings, project, changes, via=via, if_revision=if_revision, known=known
        )

    changed = run_with_etcd(given, work, writes=True)
    if changed.waiting:
        _note_what_waits(project, changed.waiting)
    print_change(given, changed.status, as_json=as_json)


def print_change(given: CommonOptions, status: TopicStatus, *, as_json: bool) -> None:
    """Report a change. Raises EvenlaneError if it is written but not in effect: a put that relies on it would fail."""
    env = given.load().settings.env
    if status.replaced is not None:
        print(  # noqa: T201
            f"note: the spec of topic {status.project} was rejected ({status.replaced}) and has been replaced:"
            " the change was made to the topic in effect instead",
            file=sys.stderr,
        )
    if as_json:
        print_json(status.document())
    elif status.spec is None:
        print(f"{status.project}: deleted{_explain_effect(status, env)}")  # noqa: T201
    elif status.is_accepted and status.in_effect is not None:
        topic = status.in_effect.topic
        print(f"{status.project}: {topic.qps:g} QPS in {format_count(topic.groups, 'group')}, {topic.state}, accepted")  # noqa: T201
        for name, quota in (topic.subscriptions or {}).items():
            print(f"{status.project}, subscription {name}: {quota_words(quota)}")  # noqa: T201
    from evenlane.engine.admin.topics.change import explain_not_in_effect

    if why := explain_not_in_effect(status, env):
        raise EvenlaneError(why)


def note(given: CommonOptions, status: TopicStatus) -> None:
    """Print a note on stderr about facts that a table doesn't show."""
    env = given.load().settings.env
    if not status.is_accepted:
        from evenlane.engine.admin.topics.change import explain_refusal

        print(f"note: {explain_refusal(status, env)}", file=sys.stderr)  # noqa: T201
    elif status.spec is None:
        print(f"note: {status.project} was deleted{_explain_effect(status, env)}", file=sys.stderr)  # noqa: T201


def _explain_effect(status: TopicStatus, env: str) -> str:
    from evenlane.engine.control.topics.status import explain_effect

    if status.in_effect is None or not status.is_accepted:
        return ""
    return f"; {explain_effect(status.project, status.in_effect, env)}"


def _note_what_waits(project: str, waiting: int) -> None:
    """Print a note about messages that wait from before the topic was ordered."""
    print(  # noqa: T201
        f"note: {format_count(waiting, 'message')} of {project} {'waits' if waiting == 1 else 'wait'} from before"
        " it was ordered: if its groups have changed since then, messages of one key may be in two groups, each"
        " with an order of its own",
        file=sys.stderr,
    )
