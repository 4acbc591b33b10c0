"""Settings of a process: defaults, overridden by a TOML file, then by `EVENLANE_*` variables, then by flags.

The source of each value is kept. Secrets are in separate files, which are read when a secret is used.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

from evenlane.engine.base import names
from evenlane.engine.base.config import secret_files, values
from evenlane.engine.base.config.pairs import check_pairs
from evenlane.engine.base.config.scaling import ScalingSettings, check_scaling
from evenlane.engine.base.config.sources import Sources
from evenlane.engine.base.durations import MAX_SECONDS, format_duration
from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.ring.hashing import Layout

Storage = Literal["file", "memory"]
LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogErrors = Literal["text", "type"]
Traces = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ScalingSettings):
    """Durations in seconds, sizes in bytes. None: not set, or for a cluster fact "what the cluster says".

    docs/reference/settings.md shows the groups, and the text under each field.
    """

    # ---- Servers and environment
    nats: Annotated[tuple[str, ...], values.list_of(values.nats_url)] = ("nats://127.0.0.1:4222",)
    """The NATS servers, separated by commas."""
    store: Annotated[tuple[str, ...] | None, values.store] = None
    """The store of messages: NATS servers, as in `nats`; or the memory of one process, for tests and trials. No other
    process can reach a store in memory, neither nodes nor commands, and it ends with its process. If `nats` is set as
    well, the setting from the source with the higher precedence counts for both.
    """
    nats_monitor: Annotated[tuple[str, ...] | None, values.list_of(values.http_url)] = None
    """The monitoring addresses of the NATS servers (`http://HOST:8222`), separated by commas. A starting node asks them
    whether the servers sync before they acknowledge, and warns of one that doesn't. Not set: nothing is asked.
    """
    etcd: Annotated[tuple[str, ...], values.list_of(values.host_port)] = ("127.0.0.1:2379",)
    """The members of the etcd cluster, separated by commas."""
    env: Annotated[str, values.name(names.check_env)] = "online"
    """The environment. Each has streams, keys and topics of its own."""
    subscription: Annotated[str | None, values.name(names.check_subscription)] = None
    """The subscription that the node works for. Not set: the one without a name. Commands other than `run` go by
    `--subscription` alone.
    """

    # ---- The node
    node: Annotated[str | None, values.name(names.check_node)] = None
    """The node's id. Two nodes never share one. Not set: the host's name and the process id."""
    concurrency: Annotated[int, values.whole(1, 100_000)] = 64
    """The number of slots: handlers that run at the same time in one process."""
    placement: Annotated[str, values.text] = "bounded-ring"
    """The strategy by which the leader places partitions on nodes: `bounded-ring`, `zones`, `range`, `round-robin`, or
    one of another package. Use the same on all nodes.
    """
    zone: Annotated[str | None, values.name(names.check_zone)] = None
    """The zone that the node is in, for the strategy `zones`: a data centre, for example. Not set: none."""
    lease_ttl: Annotated[float, values.whole_seconds(1, 600)] = 10.0
    """A node that stops renewing its lease loses its partitions after this time. Use the same on all nodes."""
    drain_grace: Annotated[float, values.duration(0, 86_400)] = 25.0
    """How long a drain may take after SIGTERM."""
    block_limit: Annotated[float, values.zero_or_duration(1, 86_400)] = 30.0
    """A process whose event loop is blocked for longer ends itself. 0: never."""
    start_timeout: Annotated[float, values.duration(0, 86_400)] = 30.0
    """How long a starting node waits for each of etcd and NATS. 0: not at all."""
    settle_interval: Annotated[float, values.duration(0.001, 5)] = 0.1
    """The time between two records of a partition's settle log."""

    # ---- New streams
    storage: Annotated[Storage, values.choice(*get_args(Storage))] = "file"
    """How a new stream stores messages. `memory` loses all of them with the server."""
    replicas: Annotated[int, values.whole(1, 5)] = 1
    """The replicas of a new stream. Use 3 in production."""
    duplicate_window: Annotated[float, values.duration(1, 3_600)] = 30.0
    """How long the server remembers an id (at 270 bytes each), and how long a producer retries a put. Use the same in
    all processes.
    """
    dead_letter_keep: Annotated[float, values.duration(1, MAX_SECONDS)] = 30 * 86_400.0
    """How long a new stream keeps dead letters. `evenlane dlq keep` changes it later."""

    # ---- A producer of some projects
    projects: Annotated[tuple[str, ...] | None, values.list_of(values.name(names.check_project), high=64)] = None
    """The only projects to which producers of this process put. They then need permissions for these projects alone,
    and nothing of JetStream's API: they create no streams and no topics. Not set: all projects.
    """

    # ---- Memory of a node
    read_ahead: Annotated[int, values.whole(1, 16_384)] = 256
    """The most messages of one queue whose payload is held in memory."""
    payload_budget: Annotated[int, values.size(2**20, 2**40)] = 64 * 2**20
    """The total size of payloads in memory, over all queues."""
    index_limit: Annotated[int, values.whole(16, 2**28)] = 65_536
    """The most messages of one queue whose sequence is held in memory, at 8 bytes each."""
    feed_budget: Annotated[int, values.size(2**20, 60 * 2**20)] = 32 * 2**20
    """Bytes in transit to a node, over all feeds. The server cuts a connection at 64 MiB."""

    # ---- HTTP, metrics and reports
    http_port: Annotated[int | None, values.whole(0, 65_535)] = None
    """The port for health, metrics, the status page and its API. 0: any free port. Not set: no HTTP."""
    http_host: Annotated[str, values.text] = "127.0.0.1"
    """The address on which HTTP is served."""
    http_token_file: Annotated[Path | None, values.file] = None
    """A file with the token for changes by HTTP, and for reading from another machine. Not set: both are refused."""
    http_tokens_file: Annotated[Path | None, values.file] = None
    """A file with tokens for HTTP that have scopes, in TOML; `evenlane token` prints its entries."""
    http_cert: Annotated[Path | None, values.file] = None
    """The certificate of the HTTP server, with its chain. With it, the port takes HTTPS only."""
    http_key: Annotated[Path | None, values.file] = None
    """The key of the HTTP server's certificate."""
    metrics_projects: Annotated[int, values.whole(0, 10_000)] = 100
    """How many of the busiest projects have metrics of their own. All others are summed up as `other`."""
    meter_interval: Annotated[float, values.duration(0, 3_600)] = 10.0
    """The time between two records for reports. 0: no records."""
    meter_keep: Annotated[float, values.duration(60, MAX_SECONDS)] = 7 * 86_400.0
    """How long a new stream keeps records for reports."""
    log_format: Annotated[LogFormat, values.choice(*get_args(LogFormat))] = "auto"
    """The format of the log. `auto` is `console` on a terminal, else `json`."""
    log_level: Annotated[LogLevel, values.choice(*get_args(LogLevel))] = "info"
    """The lowest level that is logged."""
    log_errors: Annotated[LogErrors, values.choice(*get_args(LogErrors))] = "text"
    """Whether the line of a failed attempt has the start of the error's text, or only its type. The text of some errors
    quotes the message.
    """
    traces: Annotated[Traces, values.choice(*get_args(Traces))] = "auto"
    """Whether puts and attempts become spans of OpenTelemetry. `auto`: if the process has set a tracer provider before
    it opens its node or producer.
    """

    # ---- HTTP push
    push_private: Annotated[bool, values.flag] = False
    """Whether topics may push to addresses that aren't public: this machine, its networks, a cloud's metadata."""
    push_secrets: Annotated[Path | None, values.folder] = None
    """A folder of files with the secrets of endpoints. Topics name them by `secret_ref`."""
    push_ca: Annotated[Path | None, values.file] = None
    """Certificate authorities (PEM) that are trusted in addition to the system's."""

    # ---- Login and TLS
    nats_user: Annotated[str | None, values.text] = None
    """The user name for NATS."""
    nats_password_file: Annotated[Path | None, values.file] = None
    """A file with the password for NATS."""
    nats_creds_file: Annotated[Path | None, values.file] = None
    """A file with credentials for NATS, as `nsc` writes it."""
    nats_ca: Annotated[Path | None, values.file] = None
    """The certificate authority of the NATS servers. With it, or with `tls://`, TLS is required."""
    nats_cert: Annotated[Path | None, values.file] = None
    """The client certificate for NATS."""
    nats_key: Annotated[Path | None, values.file] = None
    """The key of the client certificate for NATS."""
    nats_inbox: Annotated[str, values.inbox] = "_INBOX"
    """The first words of this process's reply subjects: `_INBOX.` and words of its own, if its user may subscribe to no
    others.
    """
    etcd_user: Annotated[str | None, values.text] = None
    """The user name for etcd."""
    etcd_password_file: Annotated[Path | None, values.file] = None
    """A file with the password for etcd."""
    etcd_ca: Annotated[Path | None, values.file] = None
    """The certificate authority of the etcd members. With it, TLS is required."""
    etcd_cert: Annotated[Path | None, values.file] = None
    """The client certificate for etcd."""
    etcd_key: Annotated[Path | None, values.file] = None
    """The key of the client certificate for etcd."""

    # ---- Cluster facts: the first process writes them to etcd, and a process with other values refuses to start
    partitions: Annotated[int | None, values.whole(1, 65_536)] = None
    """The number of partitions that nodes share."""
    priorities: Annotated[tuple[str, ...] | None, values.PRIORITIES] = None
    """The names of the priorities, the most urgent first."""
    group_qps: Annotated[float | None, values.rate] = None
    """Messages per second that a group should have. It determines a topic's number of groups."""
    max_group_qps: Annotated[float | None, values.rate] = None
    """The most messages per second of one group."""
    max_queue_backlog: Annotated[int | None, values.whole(1, 2**53)] = None
    """The most messages that one queue may hold: the NATS server refuses more. Not set: no limit."""

    layout: Annotated[Layout | None, values.choice(*get_args(Layout))] = None
    """Which partitions a project has. `hashed`: each is anywhere. `consecutive`: neighbours, which a few nodes can
    hold, so that about a tenth of the nodes work for a project; producers in other languages must know this formula.
    """

    def node_id(self) -> str:
        """The node's id: the one set, else `<host>-<pid>`."""
        return self.node or names.check_node(f"{socket.gethostname()}-{os.getpid()}")

    @property
    def cluster(self) -> str:
        """The name of the cluster (`names.cluster_name`): the nodes of one subscription."""
        return names.cluster_name(self.env, self.subscription or "")

    @property
    def is_in_memory(self) -> bool:
        """The store is in the memory of this process: no other process can reach it, and it ends with the process."""
        return self.store is not None and self.store[0].startswith(values.MEMORY)

    @property
    def nats_servers(self) -> tuple[str, ...]:
        """Those of `store`, or else of `nats`."""
        return self.nats if self.store is None or self.is_in_memory else self.store

    def nats_password(self) -> str | None:
        return secret_files.read("nats_password_file", self.nats_password_file)

    def etcd_password(self) -> str | None:
        return secret_files.read("etcd_password_file", self.etcd_password_file)

    def http_token(self) -> str | None:
        """Raises ConfigError for one that could be guessed."""
        return secret_files.read_token("http_token_file", self.http_token_file)

    def shown(self) -> dict[str, object]:
        """All values in JSON's types, credentials masked."""
        return {key: _format(getattr(self, key)) for key in KEYS}

    def written(self) -> dict[str, str | None]:
        """All values as variables and flags take them, credentials masked. None: not set."""
        found = ((key, getattr(self, key)) for key in KEYS)
        return {key: None if value is None else values.write(_PARSERS[key], value) for key, value in found}


_SCALING = tuple(each.name for each in fields(ScalingSettings))
KEYS: tuple[str, ...] = (*(each.name for each in fields(Settings) if each.name not in _SCALING), *_SCALING)
CLUSTER_SETTINGS = ("partitions", "priorities", "group_qps", "max_group_qps", "max_queue_backlog", "layout")
_PARSERS: dict[str, values.Parser] = {
    key: annotation.__metadata__[0] for key, annotation in get_type_hints(Settings, include_extras=True).items()
}
_SOURCES = Sources(KEYS, {key for key, parse in _PARSERS.items() if parse in (values.file, values.folder)})
_LAYERS = ("file", "variable", "flag")  # in rising order


class LoadedSettings(NamedTuple):
    settings: Settings
    # For each key: `default`, `file PATH`, `variable NAME` or `flag --NAME`.
    origins: dict[str, str]


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> LoadedSettings:
    """The settings in effect. A flag that is None was not given; `environ` defaults to the process's own.

    Raises ConfigError for an unknown key or a wrong value, naming key, origin, value and what would be right.
    """
    environ = os.environ if environ is None else environ
    parsed: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, "default")
    for key, value, origin in _SOURCES.values(flags or {}, environ, config):
        parsed[key] = _parse(key, value, origin)
        origins[key] = origin
    _choose_store(parsed, origins)
    check_pairs(parsed, origins)
    settings = Settings(**parsed)
    _check_together(settings, origins)
    return LoadedSettings(settings, origins)


def _parse(key: str, value: object, origin: str) -> object:
    try:
        return _PARSERS[key](value)
    except (ValueError, EvenlaneError) as error:
        raise ConfigError(f"{key} ({origin}): {error}") from error


def _choose_store(parsed: dict[str, Any], origins: dict[str, str]) -> None:
    """`store` and `nats` are two settings for one thing: the one of the higher layer counts, for both of them."""
    if "store" not in parsed:
        return
    if "nats" in parsed and parsed["nats"] != parsed["store"]:
        store, nats = (_LAYERS.index(origins[key].split()[0]) for key in ("store", "nats"))
        if store == nats:
            raise ConfigError(f"store ({origins['store']}) and nats ({origins['nats']}) differ: set one of them")
        if nats > store:
            del parsed["store"]
            origins["store"] = "default"
            return
    if not str(parsed["store"][0]).startswith(values.MEMORY):
        parsed["nats"], origins["nats"] = parsed["store"], origins["store"]


def _check_together(settings: Settings, origins: Mapping[str, str]) -> None:
    check_scaling(settings, origins)
    if settings.dead_letter_keep < settings.duplicate_window:
        raise ConfigError(
            f"dead_letter_keep ({origins['dead_letter_keep']}): {format_duration(settings.dead_letter_keep)} is less"
            f" than duplicate_window, which is {format_duration(settings.duplicate_window)}"
            f" ({origins['duplicate_window']})"
        )
    group_qps, most = settings.group_qps, settings.max_group_qps
    if group_qps is not None and most is not None and group_qps > most:
        raise ConfigError(
            f"group_qps ({origins['group_qps']}): {group_qps:g} is above max_group_qps, "
            f"which is {most:g} ({origins['max_group_qps']})"
        )


def _format(value: object) -> object:
    if isinstance(value, tuple):
        return [_format(each) for each in value]
    if isinstance(value, Path):
        return str(value)
    return values.mask_secrets(value) if isinstance(value, str) else value
