"""The four subjects of the platform, and their topics in MQTT.

A subject is a template: `{partition}` and `{project}` stand for a partition's number and a project's name. It may also
be written as the topic in MQTT, `/handler/data/partitions/p{partition}`.
"""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from evenlane import ConfigError

Kind = Literal["announce", "close", "data"]

_TREE = "handler.data.partitions.p{partition}"
_MOST_SHOWN = 200  # characters; a subject may have thousands
_FIELD = re.compile(r"\{(\w*)\}")
_PATTERNS = {"partition": r"(?P<partition>[0-9]{1,9})", "project": r"(?P<project>[^.]+)"}


class Address(NamedTuple):
    """What a subject says. `partition` and `project` are None if its template has no such field."""

    kind: Kind
    partition: int | None
    project: str | None


@dataclass(frozen=True)
class Subjects:
    """The subjects by which devices, gateways and handlers meet. Raises ConfigError for templates that can't work."""

    announce: str = _TREE
    """A gateway announces a project."""
    response: str = _TREE + ".{project}.reg.response"
    """The owner of the partition answers."""
    close: str = _TREE + ".{project}.close"
    """Nothing more comes for the project."""
    data: str = _TREE + ".{project}.data"
    """A device sends data."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            template = to_subject(getattr(self, name))
            _check(name, template, {"partition"} if name == "announce" else {"project"})
            object.__setattr__(self, name, template)
        names = list(self.__dataclass_fields__)
        for index, one in enumerate(names):
            for other in names[index + 1 :]:
                if _overlap(self.wildcard(one), self.wildcard(other)):
                    raise ConfigError(
                        f"the subjects {one} ({getattr(self, one)}) and {other} ({getattr(self, other)}) can't be"
                        " distinguished: give each its own form"
                    )

    def format(self, name: str, partition: int, project: str = "") -> str:
        """Return the subject `name` of a project."""
        template: str = getattr(self, name)
        return template.replace("{partition}", str(partition)).replace("{project}", project)

    def wildcard(self, name: str) -> str:
        """Return the subject `name` for all partitions and projects, as a subscription."""
        tokens = getattr(self, name).split(".")
        return ".".join("*" if _FIELD.search(token) else token for token in tokens)

    def inbound(self) -> list[str]:
        """Return what gateways subscribe to: all but the responses."""
        return [self.wildcard(name) for name in ("announce", "close", "data")]

    def parse(self, subject: str) -> Address | None:
        """Return what an inbound subject says; None for another subject."""
        kinds: tuple[Kind, ...] = ("announce", "close", "data")
        for kind in kinds:
            if found := re.fullmatch(_regex(getattr(self, kind)), subject):
                fields = found.groupdict()
                partition = fields.get("partition")
                return Address(kind, None if partition is None else int(partition), fields.get("project"))
        return None


def shorten(text: str) -> str:
    """Return a text that others have chosen, such as a subject: on one line, and not too long."""
    shown = repr(text)[1:-1]
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[: _MOST_SHOWN - 3]}..."


def to_topic(subject: str) -> str:
    """Return a subject as nats-server names it in MQTT."""
    return subject.replace(".", "/")


def to_subject(topic: str) -> str:
    """Return a topic of MQTT, or a subject, as a subject."""
    return topic.removeprefix("/").replace("/", ".")


def _regex(template: str) -> str:
    parts = _FIELD.split(template)
    return "".join(_PATTERNS[part] if index % 2 else re.escape(part) for index, part in enumerate(parts))


def _check(name: str, template: str, required: set[str]) -> None:
    fields = _FIELD.findall(template)
    if any(not token or re.search(r"[\s*>]", token) for token in template.split(".")):
        raise ConfigError(f"the subject {name} ({template!r}) isn't words between dots, without spaces, `*` and `>`")
    if len(fields) != len(set(fields)) or not required <= set(fields) <= set(_PATTERNS):
        raise ConfigError(
            f"the subject {name} ({template}) must contain {{{required.pop()}}} once, and no other fields than"
            " {partition} and {project}"
        )
    if name == "announce" and "project" in fields:
        raise ConfigError(f"the subject announce ({template}) can't contain {{project}}: the message names the project")


def _overlap(one: str, other: str) -> bool:
    tokens, others = one.split("."), other.split(".")
    return len(tokens) == len(others) and all(a == b or "*" in (a, b) for a, b in zip(tokens, others, strict=True))
