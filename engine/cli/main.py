"""Console command `evenlane`: its commands, and the end of each run."""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from evenlane.engine.cli.entry_points import RootGroup
from evenlane.engine.cli.errors import DONE, FAILED, INTERRUPTED, TERMINATED, report
from evenlane.engine.cli.options import Debug
from evenlane.engine.cli.output import new_app
from evenlane.engine.runtime.process_end import exit_process, is_terminated


class _Commands(RootGroup):
    """All commands, in the order of `--help`."""

    own = {  # noqa: RUF012 - constant
        "demo": "evenlane.engine.cli.bench.demo:demo",
        "up": "evenlane.engine.cli.run.up:up",
        "run": "evenlane.engine.cli.run.command:run",
        "put": "evenlane.engine.cli.put.command:put",
        "why": "evenlane.engine.cli.inspect.why:why",
        "top": "evenlane.engine.cli.top.command:top",
        "bench": "evenlane.engine.cli.bench.command:bench",
        "config": "evenlane.engine.cli.inspect.config:config",
        "permissions": "evenlane.engine.cli.inspect.permissions:permissions",
        "token": "evenlane.engine.cli.inspect.token:token",
        "topics": "evenlane.engine.cli.topics.group:app",
        "subscriptions": "evenlane.engine.cli.subscriptions.command:app",
        "backlog": "evenlane.engine.cli.inspect.backlog:app",
        "dlq": "evenlane.engine.cli.inspect.dlq:app",
        "replay": "evenlane.engine.cli.inspect.replay:replay",
        "plan": "evenlane.engine.cli.inspect.plan:app",
        "streams": "evenlane.engine.cli.inspect.streams:app",
        "scaling": "evenlane.engine.cli.inspect.scaling:scaling",
    }


app = new_app("""Evenlane: a multi-tenant, priority, fair-scheduling consumer engine on NATS JetStream.

    Example:
      evenlane up --nats-port 4222 --etcd-port 2379
      evenlane topics set acme --qps 100
      evenlane put acme "an order" --priority high
      evenlane run --handler examples.handler:handle
    """)
app.info.cls = _Commands


def root() -> RootGroup:
    """Return the group of all commands, including those of entry points."""
    group = typer.main.get_command(app)
    assert isinstance(group, RootGroup)
    group.complete()
    return group


def main() -> None:
    exit_process(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line. Returns the exit code."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return run_reported(
        lambda: app(list(arguments), prog_name="evenlane", standalone_mode=False), debug="--debug" in options
    )


def run_reported(command: Callable[[], object], *, debug: bool) -> int:
    """Run the command and report its errors. Returns the exit code."""
    try:
        code = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        word, code = ("terminated", TERMINATED) if is_terminated() else ("interrupted", INTERRUPTED)
        print(f"evenlane: {word}", file=sys.stderr)  # noqa: T201
        return code
    except BrokenPipeError:
        _abandon_stdout()
        return DONE
    except SystemExit as ending:  # typer's own reaction to a broken pipe, which would be exit code 1
        if not isinstance(ending.__context__, BrokenPipeError):
            raise
        _abandon_stdout()
        return DONE
    except typer.Abort:
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last place where an error can become a sentence
        return report(error, debug=debug)
    if code == INTERRUPTED and is_terminated():  # typer's own answer to KeyboardInterrupt
        code = TERMINATED
    return code if isinstance(code, int) else DONE


def _abandon_stdout() -> None:
    """Discard stdout's buffer, so that it doesn't fail at exit: the pipe is closed (`evenlane ... | head`)."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Debug = False,
) -> None:
    del debug
    if version:
        from evenlane.engine.base.build import describe_build

        typer.echo(f"evenlane {_version()} ({describe_build()})")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("evenlane")
    except metadata.PackageNotFoundError:
        return "(not installed)"
