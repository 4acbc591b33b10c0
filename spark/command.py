"""Command `evenlane report`: reports each tenant's backlog, its causes and duration, and a remedy."""

from __future__ import annotations

import functools
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenlane.engine.cli.options import CommonOptions, Json, common_of_subscription, past
from evenlane.engine.cli.output import print_json
from evenlane.engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence, Sized

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.control.topics.client import TopicClient
    from evenlane.engine.control.topics.status import TopicStatus
    from evenlane.spark.jobs.report import ReportFiles
    from evenlane.spark.jobs.request import ReportRequest
    from evenlane.spark.out.attention import KnownTopics
    from evenlane.spark.reports.targets import Targets

_SECOND = 1_000_000_000
_OF_NATS = ("nats_user", "nats_password_file", "nats_creds_file", "nats_ca", "nats_cert", "nats_key", "nats_inbox")

_Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder of the report; an existing report is replaced.")
]
_Window = Annotated[str, typer.Option("--window", metavar="W", help="Length of a window: 5m, 1h or 1d.")]
_Format = Annotated[str, typer.Option("--format", metavar="F[,F]", help="Formats: html, parquet, json.")]
_Archive = Annotated[
    str | None,
    typer.Option("--archive", metavar="DIR", help="Archive: first store new records there, then read it as well."),
]
_Since = Annotated[
    int | None,
    typer.Option("--since", parser=past, metavar="TIME", help="Start: RFC 3339, or a time ago, for example 6h."),
]
_Until = Annotated[
    int | None, typer.Option("--until", parser=past, metavar="TIME", help="End, as --since; now if left out.")
]
_NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Read all records from NATS, not from the record cache, and cache none.")
]
_Targets = Annotated[
    str | None,
    typer.Option("--targets", metavar="P=TIME,...", help="How long a message may wait, for example high=30s,empty=2h."),
]
_Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Spark master; this process if left out.")]
_Page = Annotated[
    str, typer.Option("--page", metavar="URL", help="Address of a node's status page, for links from the report.")
]
_Runbooks = Annotated[
    str, typer.Option("--runbooks", metavar="URL", help="Address of your copy of the runbooks, for links.")
]


@common_of_subscription
def report(
    given: CommonOptions,
    *,
    out: _Out,
    window: _Window = "1h",
    formats: _Format = "html,parquet,json",
    archive: _Archive = None,
    since: _Since = None,
    until: _Until = None,
    targets: _Targets = None,
    master: _Master = None,
    page: _Page = "",
    runbooks: _Runbooks = "",
    no_cache: _NoCache = False,
    as_json: Json = False,
) -> None:
    """Report each tenant's backlog, why it waits, for how long, and what to do about it.

    Writes report.html (one page for people), report.json, tenants.parquet/ and quotas.json, which `evenlane topics
    apply` reads. Without --since: 6 hours of 5m, a day of 1h, a week of 1d. Needs the extra evenlane[spark].
    The documentation describes each figure under "What the figures of a report mean".

    Example:
      evenlane report --out report
      evenlane report --out report --window 1d --archive /var/lib/evenlane/meter
      evenlane report --out audit-report --subscription audit
      evenlane topics apply report/quotas.json --dry-run
    """
    settings = given.load_shared().settings
    from evenlane.engine.base.log_setup import setup

    setup(settings.log_format, settings.log_level)
    _quiet_wire()
    from evenlane.spark.installed import find_missing

    if (why := find_missing()) is not None:
        raise EvenlaneError(why)
    from evenlane.spark.jobs.record_cache import default_root
    from evenlane.spark.jobs.report import ask, check
    from evenlane.spark.jobs.request import ReportRequest
    from evenlane.spark.out.document import ReportLinks

    wanted = ReportRequest(
        out=out, env=settings.env, source=_source(settings), window=window,
        formats=[each.strip() for each in formats.split(",")],
        archive=archive, since=_moment(since), until=_moment(until), targets=_targets(targets),
        links=ReportLinks(_address("--page", page), _address("--runbooks", runbooks)),
        cache=None if no_cache else default_root(), subscription=settings.subscription,
    )  # fmt: skip
    check(wanted)
    ask(wanted)
    priorities, known = _read_topics(given)
    _check_targets(wanted.targets, priorities)
    with_topics = wanted._replace(topics=known.specs, paused_by=known.paused_by, deleted=known.deleted)
    _print_result(out, _make_report(with_topics, master), as_json=as_json)


def _print_result(out: Path, written: ReportFiles, *, as_json: bool) -> None:
    content, late = written.document, sum(tenant["late"] for tenant in written.document["tenants"])
    if as_json:
        counts = {"tenants": len(content["tenants"]), "late": late, "quotas": len(content["quotas"])}
        print_json({"out": str(out), "files": written.files, "from": content["from"], "to": content["to"], **counts})
        return
    for name in written.files:
        print(out / name)  # noqa: T201
    tenants, quotas = _format_count(content["tenants"], "tenant"), _format_count(content["quotas"], "quota")
    print(f"{tenants}, {late:,} late, {quotas} to change")  # noqa: T201


def _address(option: str, text: str) -> str:
    """Return an address for a link. Raises ConfigError: a link must lead to a page, and run nothing."""
    if text and not text.startswith(("http://", "https://")):
        raise ConfigError(f"{option}: {text!r} is no address of a page: it must begin with http:// or https://")
    return text


def _format_count(things: Sized, word: str) -> str:
    count = len(things)
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _quiet_wire() -> None:
    """Silence py4j, which connects Python to Java: it logs closed connections and Ctrl-C with tracebacks."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger().addFilter(lambda record: not record.getMessage().endswith("while sending command."))


def _make_report(wanted: ReportRequest, master: str | None) -> ReportFiles:
    from evenlane.engine.cli.progress import ProgressDisplay
    from evenlane.spark.jobs.report import write
    from evenlane.spark.session import session

    with ProgressDisplay("starting Spark", plain=True, plain_every_s=0) as shown:
        opened = functools.partial(session, "evenlane report", master=master)
        return write(opened, wanted, lambda what, share: shown.update(share, what=what))


def _source(settings: Settings) -> dict[str, str]:
    """Return options of the data source."""
    more = {key: getattr(settings, key) for key in _OF_NATS}
    named = {key: str(value) for key, value in more.items() if value is not None}
    if settings.subscription is not None:
        named["subscription"] = settings.subscription
    return {"nats": ",".join(settings.nats_servers), "env": settings.env, **named}


def _moment(unix_ns: int | None) -> datetime | None:
    return None if unix_ns is None else datetime.fromtimestamp(unix_ns / _SECOND, UTC)


def _targets(text: str | None) -> Targets:
    """Parse targets; unnamed ones are those of the alerts. Raises ConfigError."""
    from evenlane.spark.reports.targets import Targets

    standard = Targets()
    if text is None:
        return standard
    named = {}
    for each in text.split(","):
        name, separator, value = each.strip().partition("=")
        if not separator or not name or not value or name in named or not (seconds := _duration(value)):
            twice = f"{name} is given twice" if name in named else f"{each.strip()!r} is not like high=30s"
            raise ConfigError(f"--targets: {twice}: name a priority, `other` or `empty`, and a time")
        named[name] = seconds
    empty, other = named.pop("empty", standard.empty_s), named.pop("other", standard.other_s)
    return Targets({**standard.oldest_s, **named}, other, empty)


def _check_targets(targets: Targets, priorities: Collection[str]) -> None:
    """Raise ConfigError for a priority that the environment doesn't have; no check if its priorities are unknown."""
    for name in targets.oldest_s.keys() - type(targets)().oldest_s.keys() - set(priorities) if priorities else ():
        raise ConfigError(f"--targets: there is no priority {name!r}: there are {', '.join(priorities)}")


def _duration(text: str) -> float:
    from evenlane.engine.base.durations import parse_duration

    try:
        return parse_duration(text)
    except ConfigError as error:
        raise ConfigError(f"--targets: {error}") from None


def _read_topics(given: CommonOptions) -> tuple[Sequence[str], KnownTopics]:
    """Return the priorities, and what etcd says of topics: of a spec, a recommended quota changes only `qps`. Specs are
    None if etcd can't be reached; priorities are empty then, or if etcd doesn't know the environment.
    """
    import msgspec

    from evenlane.engine.cli.topics.session import run_with_topics
    from evenlane.engine.control.topics.pause_authors import describe_pause
    from evenlane.spark.out.attention import UNKNOWN_TOPICS, KnownTopics

    async def work(topics: TopicClient) -> tuple[Sequence[str], list[TopicStatus], dict[str, str]]:
        found = await topics.all()
        paused = [each.project for each in found if each.state == "paused"]
        authors = {project: describe_pause((await topics.history(project)).entries) for project in paused}
        return topics.priorities, found, authors

    try:
        priorities, found, paused_by = run_with_topics(given, work)
    except EvenlaneError as error:
        print(f"quotas.json is left out, as it holds whole topics: {error}", file=sys.stderr)  # noqa: T201
        return (), UNKNOWN_TOPICS
    usable = (each for each in found if each.problem is None and isinstance(each.spec, dict))
    specs = {each.project: msgspec.to_builtins(each.spec) for each in usable}
    kept = ((each.project, each.in_effect) for each in found)
    deleted = {project: accepted.topic.state for project, accepted in kept if accepted and accepted.deleted}
    return priorities if found else (), KnownTopics(specs, paused_by, deleted)
