"""Command `evenlane topics template`: creates topics for projects that appear without one."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.options import CommonOptions, Json, common, number
from evenlane.engine.cli.output import new_app, print_json, print_table
from evenlane.engine.cli.topics.command import set_ as set_topic
from evenlane.engine.cli.topics.fields import field_words, from_flags, words
from evenlane.engine.cli.topics.session import run_with_etcd
from evenlane.engine.errors import InvalidTopic
from evenlane.quota.topics.fields import FIELDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.control.templates.client import TemplateClient, TemplateStatus
    from evenlane.ring.coordination.ports import Coordination

T = TypeVar("T")

app = new_app("""Create topics for projects that appear without one. Off as long as there is no template.

    Example:
      evenlane topics template set dev --match 'dev-*' --qps 10
      evenlane topics template list
    """)

_BACKOFF = "backoff_"
Name = Annotated[str, typer.Argument(metavar="NAME")]


def _with_topic_fields(command: Callable[..., None]) -> Callable[..., None]:
    """Add the fields of `topics set` as options to a command, which gets them as `fields`."""
    of_topics = inspect.signature(set_topic).parameters.values()
    fields = [each for each in of_topics if each.name in FIELDS or each.name.startswith(_BACKOFF)]
    own = [each for each in inspect.signature(command, eval_str=True).parameters.values() if each.name != "fields"]

    def with_fields(given: CommonOptions, **arguments: Any) -> None:
        field_values = {each.name: arguments.pop(each.name) for each in fields}
        command(given, **arguments, fields=field_values)

    keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own[1:], *fields)]
    with_fields.__signature__ = inspect.Signature([own[0], *keyword_only])  # type: ignore[attr-defined]
    with_fields.__doc__, with_fields.__name__ = command.__doc__, command.__name__
    return with_fields


@app.command("set")
@common
@_with_topic_fields
def set_(
    given: CommonOptions,
    name: Name,
    *,
    match: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Projects that match: * is any characters, ? is one.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(parser=number, metavar="N", help="Most topics that it may create; 1,000 if left out.")
    ] = None,
    fields: dict[str, object],
    as_json: Json = False,
) -> None:
    """Create a template, or change it: only the given fields change. Existing topics stay as they are.

    A new template needs --match and --qps. Of several templates that match, the one with the longest literal text wins;
    among equals, the first by name.

    Example:
      evenlane topics template set dev --match 'dev-*' --qps 10
      evenlane topics template set dev --limit 200 --ttl 1d --json
    """
    named = {field: value for field, value in (("match", match), ("limit", limit)) if value is not None}
    changes = _changes(name, named, fields)

    shown: TemplateStatus = _run_with_templates(
        given, lambda templates: templates.change(name, named, changes), writes=True
    )
    if as_json:
        print_json(shown.document())
    elif shown.template is not None:
        document = shown.document()
        most = format_count(document["limit"], "topic")
        print(f"{name}: {document['topic']['qps']:g} QPS for {document['match']}, at most {most}")  # noqa: T201


@app.command()
@common
def get(given: CommonOptions, name: Name, *, as_json: Json = False) -> None:
    """Show a template, and how many topics count towards its limit.

    Example:
      evenlane topics template get dev
    """
    document = _run_with_templates(given, lambda templates: templates.get(name)).document()
    if as_json:
        print_json(document)
        return
    topic = document.pop("topic") or {}
    print_table(
        ("FIELD", "VALUE"), ((field, field_words(field, value)) for field, value in {**document, **topic}.items())
    )


@app.command("list")
@common
def list_(given: CommonOptions, *, as_json: Json = False) -> None:
    """List the templates of the environment.

    Example:
      evenlane topics template list
    """
    documents = [shown.document() for shown in _run_with_templates(given, lambda templates: templates.all())]
    if as_json:
        print_json({"templates": documents})
        return
    print_table(("NAME", "MATCH", "QPS", "LIMIT", "MADE", "PROBLEM"), map(_line, documents))


@app.command()
@common
def delete(given: CommonOptions, name: Name, *, as_json: Json = False) -> None:
    """Delete a template: it creates no more topics, and those that it created stay.

    Example:
      evenlane topics template delete dev
    """
    _run_with_templates(given, lambda templates: templates.delete(name))
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        print(f"{name}: deleted")  # noqa: T201


def _line(document: dict[str, Any]) -> tuple[str, ...]:
    name = (
        document["name"] if document["name"].isprintable() else repr(document["name"])
    )  # etcd's values may be arbitrary
    qps = (document["topic"] or {}).get("qps")
    return name, *map(words, (document["match"], qps, document["limit"], document["made"])), document["problem"] or "-"


def _changes(name: str, named: Mapping[str, object], fields: dict[str, object]) -> dict[str, object]:
    """Return the topic's fields that the flags change. Raises InvalidTopic for errors found without etcd."""
    from evenlane.engine.cluster.topics.template_cache import check_name
    from evenlane.quota.topics.template import merge_template
    from evenlane.quota.topics.topic import TopicError

    check_name(name)
    backoff = {field.removeprefix(_BACKOFF): value for field, value in fields.items() if field.startswith(_BACKOFF)}
    flags = {field: value for field, value in fields.items() if not field.startswith(_BACKOFF)}
    try:
        given = any(value is not None for value in fields.values())
        changes = from_flags(name, subscription=None, **flags, backoff=backoff) if given or not named else {}
        merge_template(name, None, {"match": "*", **named}, {"qps": 1, **changes})
    except InvalidTopic as error:
        raise InvalidTopic(f"template {str(error).removeprefix('topic ')}") from None
    except TopicError as error:
        raise InvalidTopic(f"template {name}: {error}") from None
    return changes


def _run_with_templates(
    given: CommonOptions, work: Callable[[TemplateClient], Awaitable[T]], *, writes: bool = False
) -> T:
    async def with_stored(etcd: Coordination, settings: Settings, cluster_config: ClusterConfig) -> T:
        from evenlane.engine.control.templates.client import TemplateClient

        return await work(TemplateClient(etcd, settings.env, cluster_config))

    return run_with_etcd(given, with_stored, writes=writes)
