"""What a process goes by: defaults, then a TOML file, then `EVENLANE_*` variables, then flags.

Each value knows where it comes from. Secrets stand in files of their own and are read when they are used.
"""

import difflib
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

from evenlane.engine.base import names
from evenlane.engine.base.config import values
from evenlane.engine.base.config.toml_file import read_toml
from evenlane.engine.base.durations import MAX_SECONDS
from evenlane.engine.errors import ConfigError, EvenlaneError

PREFIX = "EVENLANE_"
CONFIG_VARIABLE = "EVENLANE_CONFIG"
DEFAULT_FILE = Path("evenlane.toml")
_TOKEN_CHARACTERS = 16

Storage = Literal["file", "memory"]
Placement = Literal["bounded-ring", "range", "round-robin"]
LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Kubernetes sets such variables in every pod beside a service named evenlane or evenlane-...: not ours.
_SERVICE_LINK = re.compile(
    r"EVENLANE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Durations in seconds, sizes in bytes. None: not set, or for a cluster fact "what the cluster says"."""

    nats: Annotated[tuple[str, ...], values.listed(values.nats_url)] = ("nats://127.0.0.1:4222",)
    etcd: Annotated[tuple[str, ...], values.listed(values.host_port)] = ("127.0.0.1:2379",)
    env: Annotated[str, values.name(names.check_env)] = "online"
    node: Annotated[str | None, values.name(names.check_node)] = None
    # Handlers that run at the same time in one process.
    concurrency: Annotated[int, values.whole(1, 100_000)] = 64
    lease_ttl: Annotated[float, values.whole_seconds(1, 600)] = 10.0
    # After SIGTERM, what is running has so long to end.
    drain_grace: Annotated[float, values.duration(0, 86_400)] = 25.0
    # A process whose event loop is blocked for longer ends itself; 0: never. The watch sees blocks of 1 s and more.
    block_limit: Annotated[float, values.zero_or_duration(1, 86_400)] = 30.0
    # A server that doesn't answer at the start is waited for so long.
    start_timeout: Annotated[float, values.duration(0, 86_400)] = 30.0

    # How the leader places partitions on nodes: give all nodes the same.
    placement: Annotated[Placement, values.choice(*get_args(Placement))] = "bounded-ring"

    storage: Annotated[Storage, values.choice(*get_args(Storage))] = "file"
    replicas: Annotated[int, values.whole(1, 5)] = 1
    # The producer's total retry time; the server remembers ids for so long, at 270 bytes each.
    duplicate_window: Annotated[float, values.duration(1, 3_600)] = 30.0
    # Dead letters are removed after so long.
    dead_letter_keep: Annotated[float, values.duration(1, MAX_SECONDS)] = 30 * 86_400.0
    # From one record for reports to the next; 0: none are made.
    meter_interval: Annotated[float, values.duration(0, 3_600)] = 10.0
    # Records for reports are removed after so long, if this process makes their stream.
    meter_keep: Annotated[float, values.duration(60, MAX_SECONDS)] = 7 * 86_400.0
    settle_interval: Annotated[float, values.duration(0.001, 5)] = 0.1

    # Messages of one queue whose payload is held.
    read_ahead: Annotated[int, values.whole(1, 16_384)] = 256
    # Payloads held by the node, all queues together.
    payload_budget: Annotated[int, values.size(2**20, 2**40)] = 64 * 2**20
    # Sequences of one queue that are indexed.
    index_limit: Annotated[int, values.whole(16, 2**28)] = 65_536
    # Outstanding bytes of all feeds; at 64 MiB the server cuts the connection.
    feed_budget: Annotated[int, values.size(2**20, 60 * 2**20)] = 32 * 2**20

    # Where the node serves health, metrics, the status page and its API by HTTP; None: it doesn't, 0: on any free port.
    http_port: Annotated[int | None, values.whole(0, 65_535)] = None
    http_host: Annotated[str, values.text] = "127.0.0.1"
    # What whoever changes something by HTTP has to know, and from another machine whoever reads; None: nobody may.
    http_token_file: Annotated[Path | None, values.file] = None
    # Projects that have metrics of their own, the busiest ones; the rest is summed up as `other`.
    metrics_projects: Annotated[int, values.whole(0, 10_000)] = 100

    # Whether topics may push to addresses that aren't public: this machine, its networks, a cloud's metadata.
    push_private: Annotated[bool, values.flag] = False
    # A folder of files, each with the secrets of an endpoint; topics name them by `secret_ref`.
    push_secrets: Annotated[Path | None, values.folder] = None
    # Authorities that are trusted beside the system's.
    push_ca: Annotated[Path | None, values.file] = None

    log_format: Annotated[LogFormat, values.choice(*get_args(LogFormat))] = "auto"
    log_level: Annotated[LogLevel, values.choice(*get_args(LogLevel))] = "info"

    nats_user: Annotated[str | None, values.text] = None
    nats_password_file: Annotated[Path | None, values.file] = None
    nats_creds_file: Annotated[Path | None, values.file] = None
    nats_ca: Annotated[Path | None, values.file] = None
    nats_cert: Annotated[Path | None, values.file] = None
    nats_key: Annotated[Path | None, values.file] = None
    etcd_user: Annotated[str | None, values.text] = None
    etcd_password_file: Annotated[Path | None, values.file] = None
    etcd_ca: Annotated[Path | None, values.file] = None
    etcd_cert: Annotated[Path | None, values.file] = None
    etcd_key: Annotated[Path | None, values.file] = None

    # Facts of the cluster: the first process writes them to etcd, one that differs refuses to start.
    partitions: Annotated[int | None, values.whole(1, 65_536)] = None
    priorities: Annotated[tuple[str, ...] | None, values.PRIORITIES] = None
    group_qps: Annotated[float | None, values.rate] = None
    max_group_qps: Annotated[float | None, values.rate] = None
    max_queue_backlog: Annotated[int | None, values.whole(1, 2**53)] = None

    def node_id(self) -> str:
        """The node's id: the one set, else `<host>-<pid>`."""
        return self.node or names.check_node(f"{socket.gethostname()}-{os.getpid()}")

    def nats_password(self) -> str | None:
        return _secret("nats_password_file", self.nats_password_file)

    def etcd_password(self) -> str | None:
        return _secret("etcd_password_file", self.etcd_password_file)

    def http_token(self) -> str | None:
        """Raises ConfigError for one that could be guessed."""
        token = _secret("http_token_file", self.http_token_file, "token")
        if token is not None and (len(token) < _TOKEN_CHARACTERS or not token.isascii() or not token.isprintable()):
            raise ConfigError(
                f"http_token_file: {self.http_token_file} should hold at least {_TOKEN_CHARACTERS} characters of ASCII,"
                " such as `openssl rand -hex 32` gives"
            )
        return token

    def shown(self) -> dict[str, object]:
        """All values in JSON's types, credentials masked."""
        return {key: _shown(getattr(self, key)) for key in KEYS}


KEYS: tuple[str, ...] = tuple(each.name for each in fields(Settings))
CLUSTER_FACTS = ("partitions", "priorities", "group_qps", "max_group_qps", "max_queue_backlog")
_PARSERS: dict[str, values.Parser] = {
    key: annotation.__metadata__[0] for key, annotation in get_type_hints(Settings, include_extras=True).items()
}
_PATHS = {key for key, parse in _PARSERS.items() if parse in (values.file, values.folder)}
_TOGETHER = (
    ("nats_user", "nats_password_file"),
    ("nats_cert", "nats_key"),
    ("etcd_user", "etcd_password_file"),
    ("etcd_cert", "etcd_key"),
)


class Loaded(NamedTuple):
    settings: Settings
    # For each key: `default`, `file PATH`, `variable NAME` or `flag --NAME`.
    origins: dict[str, str]


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Loaded:
    """The settings in force. A flag that is None was not given; `environ` defaults to the process's own.

    Raises ConfigError for an unknown key or a wrong value, naming key, origin, value and what would be right.
    """
    environ = os.environ if environ is None else environ
    parsed: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, "default")
    for key, value, origin in _given(flags or {}, environ, config):
        parsed[key] = _parsed(key, value, origin)
        origins[key] = origin
    settings = Settings(**parsed)
    _check_together(settings, origins)
    return Loaded(settings, origins)


def _given(
    flags: Mapping[str, object], environ: Mapping[str, str], config: Path | None
) -> Iterator[tuple[str, object, str]]:
    """(key, value, origin) in rising order."""
    if path := _config_path(environ, config):
        yield from _from_file(path)
    yield from _from_variables(environ)
    for key, value in flags.items():
        if value is not None:
            _known(key, f"flag {_flag(key)}", _flag)
            yield key, value, f"flag {_flag(key)}"


def _config_path(environ: Mapping[str, str], config: Path | None) -> Path | None:
    if config is not None:
        return config
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _from_file(path: Path) -> Iterator[tuple[str, object, str]]:
    origin = f"file {path}"
    try:
        document = read_toml(origin, path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{origin} can't be read: {error.strerror}") from error
    for key, value in document.items():
        _known(key, origin, str)
        yield key, _from_folder(path.parent, value) if key in _PATHS else value, origin


def _from_folder(folder: Path, value: object) -> object:
    """A path in a file is meant from that file's folder, wherever the process starts."""
    return str(folder / Path(value).expanduser()) if isinstance(value, str) and value.strip() else value


def _from_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, object, str]]:
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE or not environ[variable]:
            continue
        key = variable.removeprefix(PREFIX).lower()
        if _SERVICE_LINK.fullmatch(variable) and (key not in _PARSERS or "://" in environ[variable]):
            continue
        _known(key, f"variable {variable}", _variable)
        yield key, environ[variable], f"variable {variable}"


def _variable(key: str) -> str:
    return PREFIX + key.upper()


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _known(key: str, origin: str, spelled: Callable[[str], str]) -> None:
    if key in _PARSERS:
        return
    near = difflib.get_close_matches(key, KEYS, n=1)
    hint = f"did you mean {spelled(near[0])}?" if near else "`evenlane config` lists the settings"
    raise ConfigError(f"{origin}: there is no setting {key!r}; {hint}")


def _parsed(key: str, value: object, origin: str) -> object:
    try:
        return _PARSERS[key](value)
    except (ValueError, EvenlaneError) as error:
        raise ConfigError(f"{key} ({origin}): {error}") from error


def _check_together(settings: Settings, origins: Mapping[str, str]) -> None:
    for pair in _TOGETHER:
        there = [key for key in pair if getattr(settings, key) is not None]
        if len(there) == 1:
            [missing] = set(pair) - set(there)
            raise ConfigError(f"{there[0]} ({origins[there[0]]}): is set without {missing}; set both or neither")
    if settings.dead_letter_keep < settings.duplicate_window:
        raise ConfigError(
            f"dead_letter_keep ({origins['dead_letter_keep']}): {settings.dead_letter_keep:g}s is less than"
            f" duplicate_window, which is {settings.duplicate_window:g}s ({origins['duplicate_window']})"
        )
    wanted, most = settings.group_qps, settings.max_group_qps
    if wanted is not None and most is not None and wanted > most:
        raise ConfigError(
            f"group_qps ({origins['group_qps']}): {wanted:g} is above max_group_qps, "
            f"which is {most:g} ({origins['max_group_qps']})"
        )


def _secret(key: str, path: Path | None, what: str = "password") -> str | None:
    if path is None:
        return None
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}: {path} can't be read as text: {error}") from error
    if not secret:
        raise ConfigError(f"{key}: {path} is empty and should hold the {what}")
    return secret


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return [_shown(each) for each in value]
    if isinstance(value, Path):
        return str(value)
    return values.masked(value) if isinstance(value, str) else value
