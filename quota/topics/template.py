"""Templates: the topics of projects that appear without one. Off by default: there is no template.

A template is stored in etcd, where anyone may write, and is read as strictly as a topic. It says which projects it is
for (`match`: `*` matches any characters, `?` one), which topic they get, and how many topics it may have created
at a time.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from evenlane.quota.topics.fields import FIELDS, whole
from evenlane.quota.topics.strict_json import TopicError, format_value, read_object, write_object
from evenlane.quota.topics.topic import MOST_BYTES, merge, parse_spec

__all__ = ["DEFAULT_LIMIT", "Template", "best", "merge_template", "parse_template"]

DEFAULT_LIMIT = 1_000
_LIMIT = whole(1, 1_000_000)
_FIELDS = ("match", "topic", "limit")
_MATCH = re.compile(r"[A-Za-z0-9_*?-]{1,64}")


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """`topic` is a spec as it would be written for a project, checked field by field; `limit` is a number of topics."""

    name: str
    match: str
    topic: bytes
    limit: int = DEFAULT_LIMIT

    def is_match(self, project: str) -> bool:
        pattern = re.escape(self.match).replace(r"\*", ".*").replace(r"\?", ".")
        return re.fullmatch(pattern, project) is not None

    @property
    def literal(self) -> int:
        """The number of literal characters in `match`: the more, the more specific it is."""
        return sum(letter not in "*?" for letter in self.match)


def best(templates: Iterable[Template], project: str) -> Template | None:
    """The most specific template that matches; of equal ones the first by name. None if none matches."""
    matching = (each for each in templates if each.is_match(project))
    return min(matching, key=lambda each: (-each.literal, each.name), default=None)


def parse_template(name: str, raw: bytes) -> Template:
    """Raises TopicError."""
    return _template(name, read_object(raw, MOST_BYTES))


def merge_template(name: str, old: bytes | None, fields: Mapping[str, object], topic: Mapping[str, object]) -> bytes:
    """The present template with the given changes; None as a value of `topic` restores the default.

    Raises TopicError, also if `match` or `topic`'s `qps` are given neither here nor there.
    """
    read = {} if old is None else read_object(old, MOST_BYTES)
    was = read.get("topic")
    known = write_object(was) if isinstance(was, Mapping) else None
    merged = {**read, **fields, "topic": read_object(_under_topic(known, topic), MOST_BYTES)}
    template = _template(name, merged)
    made = {"match": template.match, "topic": merged["topic"], "limit": template.limit}
    return write_object(made)


def _template(name: str, read: Mapping[str, object]) -> Template:
    for field in read:
        if field not in _FIELDS:
            raise TopicError(str(field), f"is not a field of a template: the fields are {', '.join(_FIELDS)}")
    if "match" not in read:
        raise TopicError("match", 'is missing: it says which projects the template is for, as in "dev-*"')
    topic = read.get("topic")
    if not isinstance(topic, Mapping):
        raise TopicError("topic", f'must be an object such as {{"qps": 10}}, not {format_value(topic)}')
    for field in topic:
        if field not in FIELDS:
            raise TopicError(f"topic.{field}", f"is not a field of a topic: the fields are {', '.join(FIELDS)}")
    raw = _under_topic(None, topic)
    if parse_spec(raw).given.get("state") == "draining":
        raise TopicError("topic.state", "can't be draining: a topic that refuses puts would be created for them")
    return Template(
        name=name,
        match=_match(read["match"]),
        topic=raw,
        limit=_LIMIT("limit", read.get("limit", DEFAULT_LIMIT)),
    )


def _under_topic(old: bytes | None, changes: Mapping[str, object]) -> bytes:
    """The merged spec; its errors name the field inside the template."""
    try:
        return merge(old, changes)
    except TopicError as error:
        raise TopicError(f"topic.{error.field}" if error.field else "topic", error.reason) from None


def _match(value: object) -> str:
    if not isinstance(value, str) or not _MATCH.fullmatch(value):
        raise TopicError(
            "match",
            f"must be 1 to 64 letters, digits, '_' or '-', '*' for any of them and '?' for one,"
            f" not {format_value(value)}",
        )
    return value
