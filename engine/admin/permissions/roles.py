"""What each role needs in NATS and etcd, and nothing else (docs/how-to/secure.md). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from evenlane.engine.base import names
from evenlane.engine.errors import ConfigError, InvalidName

if TYPE_CHECKING:
    from collections.abc import Sequence

RoleName = Literal["node", "producer", "reporter", "operator"]

# A stream has another leader, or another number of replicas.
_ADVISORIES = ("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*", "$JS.EVENT.ADVISORY.STREAM.UPDATED.*")
_CONSUMERS = ("CONSUMER.CREATE.*", "CONSUMER.DELETE.*.*", "CONSUMER.MSG.NEXT.*.*")
_READS = ("STREAM.LIST", "STREAM.INFO.*", *_CONSUMERS)
_STREAMS = ("INFO", "STREAM.CREATE.*", "STREAM.UPDATE.*", "STREAM.MSG.GET.*", "STREAM.MSG.DELETE.*", "DIRECT.GET.*")
_OF_TOPICS = ("settings", "topics/", "authors/", "accepted/", "history/", "templated/")
_OF_A_CLUSTER = (
    "nodes/", "leader", "generation", "plan/", "owners/", "epochs/", "done/", "held/", "scaling", "seen/"
)  # fmt: skip


# nats-server takes commas, but nsc splits at them.
_WORD = r"(?:\*|[^\s.*>,\x00-\x1f\x7f-\x9f]+)"
_SUBJECT = re.compile(rf"(?:{_WORD}\.)*(?:{_WORD}|>)")


@dataclass(frozen=True, slots=True)
class Additions:
    """What a process does beyond its role: subjects of NATS that it uses itself, answers to requests on those that it
    subscribes to, topics that it creates and changes, and named subscriptions that it creates and deletes or, as a
    node, works for. Whoever may send such a request chooses the subject of its answer, and nats-server doesn't check
    it.
    """

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    answers: bool = False
    topics: bool = False
    subscriptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """The permissions of one user. Keys of etcd that end with `/` are prefixes. With `answers` it may publish once to
    the reply subject of each request.

    `name` is that of the user in NATS and of the role in etcd. `settings` are those of the process. `exports` and
    `imports` are services between accounts of NATS: those that the account of the nodes offers, and those that the
    account of a producer needs.
    """

    name: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    read: tuple[str, ...]
    write: tuple[str, ...]
    settings: dict[str, str]
    exports: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    answers: bool = False


def make_role(
    kind: RoleName,
    env: str,
    projects: Sequence[str] = (),
    name: str | None = None,
    additions: Additions = Additions(),
) -> Role:
    """Return a role. `projects` are those of a producer, none for a producer of all projects. Raises ConfigError,
    InvalidName.
    """
    names.check_env(env)
    for project in projects:
        names.check_project(project)
    if projects and kind != "producer":
        raise ConfigError(f"--project: a {kind} works for all projects: only a producer can be limited to some")
    own = _name(kind, projects, name)
    if kind == "producer":
        role = _producer(own, env, tuple(dict.fromkeys(projects)))
    elif kind == "node":
        role = _node(own, env, additions.subscriptions)
    else:
        role = {"reporter": _reporter, "operator": _operator}[kind](own, env)
    return _add(role, kind, env, additions)


def _add(role: Role, kind: RoleName, env: str, additions: Additions) -> Role:
    for subject in (*additions.publish, *additions.subscribe):
        if not _SUBJECT.fullmatch(subject):
            raise ConfigError(
                f"{subject!r} is not a subject of NATS: write words between dots, such as orders.*.created, without"
                " commas and control characters; an option may be repeated"
            )
    if additions.answers and not additions.subscribe:
        raise ConfigError("--answer: name the subjects of the requests by --subscribe")
    if additions.topics:
        if kind != "producer" or "projects" in role.settings:
            raise ConfigError("--topics: only a producer of all projects can have it; an operator may change topics")
        # The author of another change is named if both change a topic at once.
        role = replace(
            role,
            read=tuple(dict.fromkeys((*role.read, *_keys(env, "topics/", "authors/", "leader")))),
            write=_keys(env, "topics/", "authors/"),
        )
    role = _add_subscriptions(role, kind, env, additions.subscriptions)
    return replace(
        role,
        publish=(*role.publish, *additions.publish),
        subscribe=(*role.subscribe, *additions.subscribe),
        answers=additions.answers,
    )


def _add_subscriptions(role: Role, kind: RoleName, env: str, subscriptions: Sequence[str]) -> Role:
    """Add what an operator needs to create, delete and inspect these subscriptions, and to drop and replay their
    messages. No wildcard of NATS matches the names of an environment's subscriptions and nothing else, so each is
    named.
    """
    if not subscriptions or kind == "node":
        return role
    if kind != "operator":
        raise ConfigError("--subscription: an operator creates and deletes subscriptions, and a node works for one")
    clusters = [names.cluster_name(env, names.check_subscription(each)) for each in dict.fromkeys(subscriptions)]
    logs = [f"settled.{cluster}.*.*" for cluster in (env, *clusters)]
    own = [subject for cluster in clusters for subject in (f"again.{cluster}.>", *_asks(cluster))]
    deleted = [names.probe_stream(env), *(stream for cluster in clusters for stream in names.own_streams(cluster))]
    deletions = _api(*(f"STREAM.DELETE.{stream}" for stream in deleted))
    return replace(
        role,
        publish=(*role.publish, *logs, *own, *deletions),
        write=(*role.write, *_keys(env, "subscriptions"), *(names.key(cluster, "") for cluster in clusters)),
    )


def _name(kind: RoleName, projects: Sequence[str], name: str | None) -> str:
    if name is None:
        if len(projects) > 1:
            raise ConfigError("--name: a producer of several projects needs a name that no other user has")
        return "-".join((kind, *projects))
    if not names.is_project(name):
        raise InvalidName(
            f"name {name!r} is not valid: 1 to 64 letters, digits, '_' or '-', the first a letter or digit"
        )
    return name


def _node(name: str, env: str, subscriptions: Sequence[str]) -> Role:
    """A node, of the unnamed subscription or of a named one. Their account exports what the first role says."""
    if len(subscriptions) > 1:
        raise ConfigError("--subscription: a node works for one subscription")
    cluster = names.cluster_name(env, *map(names.check_subscription, subscriptions))
    own = ("dead", "settled", "meter", *(("again",) if subscriptions else ()))
    streams = (f"lanes.{env}.>", f"later.{env}.>", *(f"{kind}.{cluster}.>" for kind in own), f"busy.{env}.*")
    messages = (f"backlog.{cluster}.*", f"shares.{cluster}.>", f"ask.{cluster}.>")
    return Role(
        name,
        # Nodes answer requests of every user, those of other accounts (_R_) too.
        publish=(*streams, *messages, "_INBOX.>", "_R_.>", *_api(*_READS, *_STREAMS, "STREAM.PURGE.*")),
        subscribe=(
            *_inbox(name),
            f"ask.{cluster}.>",
            f"shares.{cluster}.>",
            *sorted({f"backlog.{env}.*", messages[0]}),
        ),
        read=_keys(env, ""),
        write=(*_keys(env, *_OF_TOPICS), *_keys(cluster, *_OF_A_CLUSTER)),
        settings=_settings(name, env) | ({"subscription": subscriptions[0]} if subscriptions else {}),
        exports=(f"lanes.{env}.>", f"later.{env}.>", f"ask.{env}.backlog.*") if not subscriptions else (),
    )


def _producer(name: str, env: str, projects: tuple[str, ...]) -> Role:
    if not projects:
        return Role(
            name,
            publish=(f"lanes.{env}.>", f"later.{env}.>", *_api("INFO", "STREAM.LIST", "STREAM.INFO.*")),
            subscribe=(*_inbox(name), f"backlog.{env}.*"),
            read=_keys(env, "settings", "accepted/", "templates/"),
            write=(),
            settings=_settings(name, env),
        )
    # The partition comes before the project: which one it is depends on the topic's groups, so any may be used.
    puts = [subject for each in projects for subject in (f"lanes.{env}.*.{each}.*.*", f"later.{env}.*.{each}.*.*.*")]
    publish = (*puts, *(f"ask.{env}.backlog.{each}" for each in projects))
    return Role(
        name,
        publish=publish,
        subscribe=_inbox(name),
        read=_keys(env, "settings", *(f"accepted/{each}" for each in projects)),
        write=(),
        settings=_settings(name, env) | {"projects": ",".join(projects)},
        imports=publish,
    )


def _reporter(name: str, env: str) -> Role:
    return Role(
        name,
        publish=_api(*_READS),
        subscribe=_inbox(name),
        read=_keys(env, "settings", "topics/", "authors/", "accepted/", "history/", "leader"),
        write=(),
        settings=_settings(name, env),
    )


def _operator(name: str, env: str) -> Role:
    return Role(
        name,
        publish=(f"lanes.{env}.>", *_asks(env), *_api(*_READS, *_STREAMS)),  # replay puts into lanes
        subscribe=_inbox(name),
        read=_keys(env, ""),
        # While no node runs, a command does the leader's part.
        write=_keys(env, "topics/", "authors/", "accepted/", "history/", "templates/", "templated/"),
        settings=_settings(name, env),
    )


def _asks(cluster: str) -> tuple[str, ...]:
    """The requests of an operator to nodes."""
    return f"ask.{cluster}.why.*", f"ask.{cluster}.overview", f"ask.{cluster}.drop.*"


def _api(*verbs: str) -> tuple[str, ...]:
    return tuple(f"$JS.API.{verb}" for verb in verbs)


def _inbox(name: str) -> tuple[str, ...]:
    return f"_INBOX.{name}.>", *_ADVISORIES


def _keys(cluster: str, *ends: str) -> tuple[str, ...]:
    return tuple(names.key(cluster, end) for end in ends)


def _settings(name: str, env: str) -> dict[str, str]:
    return {"env": env, "nats_user": name, "nats_inbox": f"_INBOX.{name}", "etcd_user": name}
