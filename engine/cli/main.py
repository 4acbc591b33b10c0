"""Console command `evenlane`: its commands, and the end of each run."""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from evenlane.engine.cli.bench import command as bench
from evenlane.engine.cli.bench import demo
from evenlane.engine.cli.entry_points import RootGroup
from evenlane.engine.cli.errors import DONE, FAILED, INTERRUPTED, report
from evenlane.engine.cli.inspect import backlog, config, dlq, plan, why
from evenlane.engine.cli.options import Debug
from evenlane.engine.cli.output import new_app
from evenlane.engine.cli.put import command as put
from evenlane.engine.cli.run import command as run_command
from evenlane.engine.cli.run import up
from evenlane.engine.cli.top.command import top
from evenlane.engine.cli.topics import command as topics
from evenlane.engine.cli.topics import templates

app = new_app("""Evenlane: a multi-tenant, priority, fair-scheduling consumer engine on NATS JetStream.

    Example:
      evenlane up --nats-port 4222 --etcd-port 2379
      evenlane topics set acme --qps 100
      evenlane put acme "an order" --priority high
      evenlane run --handler examples.handler:handle
    """)
app.info.cls = RootGroup
app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("run")(run_command.run)
app.command("put")(put.put)
topics.app.add_typer(templates.app, name="template")
app.add_typer(topics.app, name="topics")
app.command("why")(why.why)
app.command("top")(top)
app.add_typer(backlog.app, name="backlog")
app.add_typer(dlq.app, name="dlq")
app.add_typer(plan.app, name="plan")
app.command("bench")(bench.bench)
app.command("config")(config.config)


def root() -> RootGroup:
    """Return the group of all commands, including those of entry points."""
    group = typer.main.get_command(app)
    assert isinstance(group, RootGroup)
    group.complete()
    return group


def main() -> None:
    sys.exit(run(sys.argv[1:]))


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
        print("evenlane: interrupted", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
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
        typer.echo(f"evenlane {_version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("evenlane")
    except metadata.PackageNotFoundError:
        return "(not installed)"
