"""Command `evenlane permissions`: prints the permissions that a process needs in NATS and etcd."""

from enum import StrEnum
from typing import Annotated

import typer

from evenlane.engine.cli.options import CommonOptions, common


class Role(StrEnum):
    """The roles of processes."""

    NODE = "node"
    PRODUCER = "producer"
    REPORTER = "reporter"
    OPERATOR = "operator"


class Format(StrEnum):
    """What reads the permissions."""

    NATS = "nats"
    NATS_ACCOUNT = "nats-account"
    NSC = "nsc"
    JSON = "json"
    ETCD = "etcd"


_Role = Annotated[Role, typer.Argument(metavar="ROLE", help="node, producer, operator or reporter.")]
_Projects = Annotated[
    list[str] | None, typer.Option("--project", metavar="PROJECT", help="Only this project; may be repeated.")
]
_Format = Annotated[
    Format,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="nats or nats-account: configuration; nsc or json: for users with a JWT; etcd: commands for etcdctl.",
    ),
]
_Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The user's name. Default: the role, and its project.")
]
_Publish = Annotated[
    list[str] | None,
    typer.Option("--publish", metavar="SUBJECT", help="A subject to which the process itself publishes; repeatable."),
]
_Subscribe = Annotated[
    list[str] | None,
    typer.Option("--subscribe", metavar="SUBJECT", help="A subject to which it subscribes itself; repeatable."),
]
_Answer = Annotated[
    bool,
    typer.Option(
        "--answer",
        help="It answers requests that it subscribes to, on any subject: whoever may send requests chooses it.",
    ),
]
_Topics = Annotated[bool, typer.Option("--topics", help="A producer that creates and changes topics.")]
_Subscriptions = Annotated[
    list[str] | None,
    typer.Option(
        "--subscription",
        metavar="NAME",
        help="A subscription that an operator creates and deletes (repeatable), or that a node works for.",
    ),
]


@common
def permissions(
    given: CommonOptions,
    role: _Role,
    *,
    project: _Projects = None,
    output: _Format = Format.NATS,
    name: _Name = None,
    publish: _Publish = None,
    subscribe: _Subscribe = None,
    answer: _Answer = False,
    topics: _Topics = False,
    subscription: _Subscriptions = None,
) -> None:
    """Print the permissions that a process needs in NATS or etcd, and no more.

    A node runs handlers, a producer puts, a reporter makes reports, and an operator uses the other commands. The
    output's first lines name the settings that the process needs. If the process uses NATS itself, --publish and
    --subscribe add its subjects. Contacts nothing.

    Example:
      evenlane permissions node > node.conf
      evenlane permissions producer --project acme --format etcd
      evenlane permissions producer --project acme --format nsc
      evenlane permissions node --publish 'orders.*.created'
      evenlane permissions operator --subscription audit
    """
    from evenlane.engine.admin.permissions import formats
    from evenlane.engine.admin.permissions.roles import Additions, make_role

    subjects = tuple(publish or ()), tuple(subscribe or ())
    additions = Additions(*subjects, answers=answer, topics=topics, subscriptions=tuple(subscription or ()))
    made = make_role(role.value, given.load().settings.env, project or (), name, additions)
    write = {
        Format.NATS: formats.nats_config,
        Format.NATS_ACCOUNT: formats.nats_account,
        Format.NSC: formats.nsc_commands,
        Format.JSON: formats.jwt_permissions,
        Format.ETCD: formats.etcd_commands,
    }[output]
    typer.echo(write(made), nl=False)
