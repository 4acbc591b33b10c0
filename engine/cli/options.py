"""Options that all commands share, given after the command: `evenlane put acme hello --env sandbox`.

A new command is a module in a folder of this room:

    @common
    def why(given: CommonOptions, project: Project, *, as_json: Json = False) -> None:
        '''Explain why a project's messages wait.

        Example:
            evenlane why acme --priority high
        '''
        settings = given.load().settings
        from evenlane.engine.core.stats.forecast import ...  # slow imports go here, so that --help stays quick

and a line in engine/cli/main.py. Flags that are settings go through `given.load(concurrency=concurrency)`; take them as
text, so that an invalid one gets the setting's own message. Raise an EvenlaneError for errors that a person can cause;
everything else is a defect.
"""

import functools
import inspect
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from evenlane.engine.base.config.settings import LoadedSettings, load
from evenlane.engine.base.durations import parse_duration, parse_instant, parse_past
from evenlane.engine.cli.output import with_examples
from evenlane.engine.errors import ConfigError

Nats = Annotated[str | None, typer.Option("--nats", metavar="URL[,URL]", help="NATS servers.")]
Store = Annotated[
    str | None, typer.Option("--store", metavar="URL[,URL]", help="The same as --nats, or memory:// for a trial.")
]
Etcd = Annotated[str | None, typer.Option("--etcd", metavar="HOST:PORT[,...]", help="etcd members.")]
Env = Annotated[str | None, typer.Option("--env", metavar="NAME", help="Environment, for example online.")]
Subscription = Annotated[
    str | None,
    typer.Option("--subscription", metavar="NAME", help="Subscription to inspect. Default: the unnamed one."),
]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings file, in TOML.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")]


class CommonOptions(NamedTuple):
    """Values of the common options."""

    nats: str | None = None
    etcd: str | None = None
    env: str | None = None
    config: Path | None = None
    store: str | None = None
    subscription: str | None = None

    def load(self, **flags: object) -> LoadedSettings:
        """Return the settings in effect, including the command's own flags; None means not given. The subscription is
        that of the flag: the setting is for nodes, and mustn't turn a command to another one's messages.
        """
        named = {
            "nats": self.nats, "store": self.store, "etcd": self.etcd, "env": self.env,
            "subscription": self.subscription,
        }  # fmt: skip
        loaded = load({**named, **flags}, config=self.config)
        if "subscription" in flags:  # the command starts nodes
            return loaded
        return loaded._replace(settings=replace(loaded.settings, subscription=self.subscription))

    def load_shared(self) -> LoadedSettings:
        """Return the settings for a command that needs other processes' store. Raises ConfigError for `memory://`."""
        loaded = self.load()
        if loaded.settings.is_in_memory:
            raise ConfigError(
                f"store ({loaded.origins['store']}): memory:// lives in the memory of one process, which this"
                " command can't reach: use --nats"
            )
        return loaded


def _common_options(
    *, nats: Nats = None, store: Store = None, etcd: Etcd = None, env: Env = None, config: Config = None,
    debug: Debug = False,
) -> CommonOptions:  # fmt: skip
    del debug  # evenlane.engine.cli.main reads it, as it matters before and after a command runs
    return CommonOptions(nats, etcd, env, config, store)


def _subscription_options(*, subscription: Subscription = None, **shared: Any) -> CommonOptions:
    return _common_options(**shared)._replace(subscription=subscription)


def common(command: Callable[..., None]) -> Callable[..., None]:
    """Add the common options to a command, which gets them as its first argument, a `CommonOptions`."""
    return _with_options(command, _common_options, inspect.signature(_common_options).parameters.values())


def common_of_subscription(command: Callable[..., None]) -> Callable[..., None]:
    """Add the common options, and the subscription that the command is about."""
    own = inspect.signature(_subscription_options).parameters["subscription"]
    shared = (own, *inspect.signature(_common_options).parameters.values())
    return _with_options(command, _subscription_options, shared)


def _with_options(
    command: Callable[..., None], read: Callable[..., CommonOptions], options: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    shared = {option.name: option for option in options}
    _first, *own = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def with_common(**arguments: Any) -> None:
        shared_values = {name: arguments.pop(name) for name in shared}
        command(read(**shared_values), **arguments)

    keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared.values())]
    with_common.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    with_common.__doc__ = with_examples(command.__doc__)
    return with_common


def number(text: str) -> int:
    """Parse a whole number, for `typer.Option(parser=number, metavar="N")`, with a readable error message."""
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a whole number") from error


def factor(text: str) -> float:
    """Parse a finite number above 0, for `typer.Option(parser=factor, metavar="X")`."""
    try:
        value = float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number") from error
    if not math.isfinite(value) or value <= 0:
        raise typer.BadParameter(f"{text!r} is not a number above 0: 1.0 is the topic's own rate")
    return value


def seconds(text: str) -> float:
    """Parse a duration, for `typer.Option(parser=seconds, metavar="DURATION")`."""
    try:
        return parse_duration(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error


def past(text: str) -> int:
    """Parse RFC 3339 or a time ago to unix ns, for `typer.Option(parser=past, metavar="TIME")`."""
    try:
        return parse_past(text, time.time_ns())
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error


def instant(text: str) -> int:
    """Parse RFC 3339 to unix ns, for `typer.Option(parser=instant, metavar="RFC3339")`."""
    try:
        return parse_instant(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
