"""Determines the ranges to read, of one stream or of all lanes, from the server's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.admin.export.messages import lane_of
from evenlane.engine.base import names
from evenlane.engine.core.export_port import Range
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from evenlane.engine.admin.export.client import StreamReader
    from evenlane.engine.core.export_port import Stream
    from evenlane.spark.source.filters import ReadFilter
    from evenlane.spark.source.options import Options

_MOST_SUBJECTS = 64  # with more subjects, the server would be slower
_STREAM_OF = {"meter": names.meter_stream, "dead": names.dead_stream}


def present(server: StreamReader, options: Options) -> list[Stream]:
    """Return the streams to read. Raises EvenlaneError if there is none, unless the options allow that."""
    env, subscription = options.settings.env, options.settings.subscription
    if subscription is not None:
        server.check_subscription(env, subscription)
    if options.what == "lanes":
        every = [each for kind in ("lanes", "later") for each in server.streams(f"{kind}.{env}.>")]
        found = [each for each in every if lane_of(each.name, env) is not None]
        wanted = f"LANES_{env}_<partition>"
    else:
        wanted = _STREAM_OF[options.what](options.settings.cluster)
        stream = server.stream(wanted)
        found = [] if stream is None else [stream]
    if not found and not options.missing_ok:
        raise EvenlaneError(
            f"NATS at {server.where} has no stream {wanted}: no node of environment {env!r} has run there,"
            " or the option env is wrong"
        )
    return found


def ranges(server: StreamReader, options: Options, narrow: ReadFilter) -> list[Range]:
    """Return the ranges of these streams in the time span that may be wanted. Raises EvenlaneError, Unreachable."""
    env, span = options.settings.env, narrow.span
    found = []
    for stream in present(server, options):
        if not stream.messages or not _is_wanted(stream, env, narrow):
            continue
        first, last = stream.first, stream.last
        if span.since is not None and (first := max(first, server.sequence_at(stream.name, span.since))) > last:
            continue
        if span.until is not None:
            last = min(last, server.sequence_at(stream.name, span.until) - 1)
        found.append(Range(stream.name, first, last, _subjects(stream, options, narrow), needs_bodies(options)))
    return found


def needs_bodies(options: Options) -> bool:
    return options.payload or options.what == "meter"


def _is_wanted(stream: Stream, env: str, narrow: ReadFilter) -> bool:
    lane = lane_of(stream.name, env)
    if lane is None:
        return True
    return (narrow.kind is None or lane.kind in narrow.kind) and (
        narrow.partition is None or lane.partition in narrow.partition
    )


def _subjects(stream: Stream, options: Options, narrow: ReadFilter) -> tuple[str, ...]:
    """Return the subjects of the wanted tenants or nodes; empty, which means all subjects, if all are wanted, if none
    of them can exist, or if there are too many.
    """
    env, cluster = options.settings.env, options.settings.cluster
    lane = lane_of(stream.name, env)
    if options.what == "meter":
        found = [names.meter_subject(cluster, node) for node in _some(narrow.node) if names.is_node(node)]
    else:
        start = f"dead.{cluster}." if lane is None else f"{lane.kind}.{env}.{lane.partition}."
        projects = [project for project in _some(narrow.project) if names.is_project(project)]
        found = [f"{start}{project}{'' if lane is None else '.>'}" for project in projects]
    return tuple(found) if len(found) <= _MOST_SUBJECTS else ()


def _some(values: frozenset[Any] | None) -> list[str]:
    return sorted(each for each in values or () if isinstance(each, str))
