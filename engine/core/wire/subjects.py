"""Finds the queue that a subject names. Messages with an unroutable subject are dead-lettered. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.errors import InvalidName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.base.names import Kind

_WORDS = {"lanes": 6, "later": 7, "again": 7}
_GROUPS = 1_000_000  # more than any topic has


class UnroutableSubject(ValueError):
    """The subject names no queue; the text says why."""


def parse_queue(subject: bytes, kind: Kind, bands: Mapping[str, int]) -> tuple[str, int, int]:
    """Project, group and band of a subject in this kind of stream; `bands` maps priorities to bands. Raises
    UnroutableSubject.
    """
    words = subject.decode("utf-8", "replace").split(".")
    if len(words) != _WORDS[kind]:
        raise UnroutableSubject(f"it has {len(words)} words, not {_WORDS[kind]}")
    project, group, band = words[3], names.number(words[4]), bands.get(words[5])
    try:
        names.check_project(project)
    except InvalidName as error:
        raise UnroutableSubject(str(error)) from None
    if band is None:
        raise UnroutableSubject(f"there is no priority {words[5]!r}: only {', '.join(bands)}")
    if group is None or group >= _GROUPS:
        raise UnroutableSubject(f"{words[4]!r} is not a group number")
    if kind != "lanes" and names.due_hour(words[6]) is None:
        raise UnroutableSubject(f"{words[6]!r} is not an hour")
    return project, group, band
