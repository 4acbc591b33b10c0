"""Bodies of requests and answers as structs, from which the OpenAPI document gets its schemas.

The fields of a topic come from the topic itself.
"""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from types import GenericAlias
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenlane.engine.producer.json_lines import JsonMessage
from evenlane.quota.rates.backoff import Backoff
from evenlane.quota.topics.subscription_quota import SubscriptionQuota
from evenlane.quota.topics.topic import Accepted, Topic

MOST_LISTED = 500
_LISTED = 100


class NewMessage(JsonMessage, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A message to put: either `body`, which is text, or `body_base64`. A `project` must be the one in the path.
    `delay` and `ttl` are seconds or text such as 10m; `due` is RFC 3339.
    """

    project: str | None = None


class StoredMessage(msgspec.Struct, forbid_unknown_fields=True):
    """Place of a stored message. A `duplicate` was already stored under its id; the place is that of the first."""

    stream: str
    sequence: int
    duplicate: bool
    id: str | UnsetType = UNSET


class RefusedLine(msgspec.Struct, forbid_unknown_fields=True):
    """A line whose message isn't stored, counted from 1."""

    line: int
    error: str
    type: str


class PutResult(msgspec.Struct, forbid_unknown_fields=True):
    """Results of all lines. `refused_unlisted` is there only if there were too many refusals to list."""

    put: int
    duplicates: int
    refused: list[RefusedLine]
    refused_unlisted: int | UnsetType = UNSET


class ErrorDocument(msgspec.Struct, forbid_unknown_fields=True):
    """One sentence, and the name of the error's class in Python, or of the HTTP status. The other fields are there if
    JSON lines ended early: they count the lines until then.
    """

    error: str
    type: str
    put: int | UnsetType = UNSET
    duplicates: int | UnsetType = UNSET
    refused: list[RefusedLine] | UnsetType = UNSET
    refused_unlisted: int | UnsetType = UNSET


class ListOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Which topics to list: at most `limit`, whose names come after `after`."""

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = _LISTED


def _optional(name: str, kind: Any) -> tuple[str, Any, Any]:
    return name, kind | None | UnsetType, UNSET


def _in_effect(name: str, kind: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    """`subscriptions` is left out where there are none, as in the accepted topic in etcd."""
    return (name, dict[str, SubscriptionQuota] | UnsetType, UNSET) if name == "subscriptions" else (name, kind)


_TOPIC = get_type_hints(Topic)
_ACCEPTED = {name: kind for name, kind in get_type_hints(Accepted).items() if name != "topic"}
_BACKOFF = {field.name: kind for field in dataclass_fields(Backoff) for kind in [get_type_hints(Backoff)[field.name]]}

BackoffFields = msgspec.defstruct(
    "BackoffFields",
    [(name, kind | UnsetType, UNSET) for name, kind in _BACKOFF.items()],
    forbid_unknown_fields=True,
    namespace={"__doc__": "Delays between attempts. A field that is left out keeps its value, or has its default."},
)
_FIELDS = {**_TOPIC, "backoff": BackoffFields, "subscriptions": dict[str, SubscriptionQuota | None] | None}

TopicSpec = msgspec.defstruct(
    "TopicSpec",
    [("qps", _TOPIC["qps"]), *(_optional(name, kind) for name, kind in _FIELDS.items() if name != "qps")],
    forbid_unknown_fields=True,
    namespace={"__doc__": "A whole topic. A field that is null or left out has its default."},
)
TopicChanges = msgspec.defstruct(
    "TopicChanges",
    [_optional(name, kind) for name, kind in _FIELDS.items()],
    forbid_unknown_fields=True,
    namespace={"__doc__": "Fields of a topic to change; null restores the default."},
)
TopicInEffect = msgspec.defstruct(
    "TopicInEffect",
    [*(_in_effect(name, kind) for name, kind in _TOPIC.items()), *_ACCEPTED.items()],
    forbid_unknown_fields=True,
    kw_only=True,
    namespace={"__doc__": "The accepted topic, as nodes and producers use it."},
)
TopicDocument = msgspec.defstruct(
    "TopicDocument",
    [
        ("project", str),
        ("accepted", bool),
        ("problem", str | None),
        ("damage", str | None),
        ("revision", int),
        ("wish", dict[str, Any] | str | None),
        ("in_force", TopicInEffect | None),
    ],
    forbid_unknown_fields=True,
    namespace={"__doc__": "A topic, as `evenlane topics get --json` prints it: `wish` is its spec."},
)
TopicPage = msgspec.defstruct(
    "TopicPage",
    [("topics", GenericAlias(list, TopicDocument)), ("next", str | None)],
    forbid_unknown_fields=True,
    namespace={
        "__doc__": "Topics by name. `next` is the value of `after` for the next page, null if this is the last."
    },
)
