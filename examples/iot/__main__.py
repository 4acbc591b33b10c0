"""The commands of the platform: `python -m examples.iot [COMMAND]`."""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

from evenlane import EvenlaneError
from examples.iot.messages import Answer
from examples.iot.settings import PlatformSettings
from examples.iot.subjects import to_topic


def say(sentence: str) -> None:
    print(sentence, flush=True)


async def demo(options: argparse.Namespace) -> int:
    """Run all of it for a while; return 1 if a message is missing at the end."""
    from examples.iot.processes import Platform, Ports  # noqa: PLC0415 - `topic` needs none of it
    from examples.iot.simulation import Plan, run_simulation  # noqa: PLC0415

    plan = Plan(options.devices, options.projects, options.seconds, options.interval, kill=not options.no_kill)
    with tempfile.TemporaryDirectory(prefix="iot-") as folder:
        async with Platform(options.data_dir or Path(folder), Ports()) as platform:
            os.environ |= platform.environ
            say(f"{len(platform.nodes)} nodes and {len(platform.gateways)} gateways run")
            totals = await run_simulation(platform, PlatformSettings.of(), plan, say)
    say(totals.text())
    return 1 if totals.missing else 0


async def up(options: argparse.Namespace) -> int:
    """Run servers, nodes and gateways until a signal."""
    from examples.iot.cut_off import watch  # noqa: PLC0415
    from examples.iot.processes import Platform, Ports  # noqa: PLC0415

    ports = Ports(options.nats_port, options.etcd_port, options.mqtt_port)
    async with Platform(options.data_dir, ports, nodes=options.nodes, gateways=options.gateways) as platform:
        watching = asyncio.create_task(watch(options.data_dir / "nats.log", say))
        shown = " ".join(f"{name}={platform.environ[key]}" for name, key in _SHOWN.items())
        say(f"ready {shown} database={platform.database}")
        try:
            await asyncio.Event().wait()
        finally:
            watching.cancel()
    return 0


_SHOWN = {"mqtt": "IOT_MQTT", "nats": "EVENLANE_NATS", "etcd": "EVENLANE_ETCD"}


async def gateway(options: argparse.Namespace) -> int:
    """Run a gateway until a signal."""
    from evenlane.engine.base.log_setup import setup  # noqa: PLC0415
    from examples.iot.gateway import run_gateway  # noqa: PLC0415

    setup(level="warning")
    await run_gateway(options.name, PlatformSettings.of())
    return 0


async def topic(options: argparse.Namespace) -> int:
    """Print the topic of MQTT to which a project's devices publish."""
    from examples.iot.control import partition_of  # noqa: PLC0415

    subjects = PlatformSettings.of().subjects
    say(to_topic(subjects.format("data", await partition_of(options.project), options.project)))
    return 0


async def announce(options: argparse.Namespace) -> int:
    """Register a project, and print the answer."""
    from examples.iot.control import announce as ask  # noqa: PLC0415

    return _print_answer(await ask(options.project, PlatformSettings.of(), qps=options.qps))


async def close(options: argparse.Namespace) -> int:
    """Close a project, and print the answer."""
    from examples.iot.control import close as ask  # noqa: PLC0415

    return _print_answer(await ask(options.project, PlatformSettings.of()))


async def data(options: argparse.Namespace) -> int:
    """Print what the database holds of a project."""
    return _print_rows("SELECT id, body FROM data WHERE project = ? ORDER BY stored_at", options.project)


async def refused(_options: argparse.Namespace) -> int:
    """Print the messages that gateways have refused, and why."""
    return _print_rows("SELECT subject, reason FROM refused ORDER BY refused_at")


async def permissions(options: argparse.Namespace) -> int:
    """Print what a gateway or a node may do, as `evenlane permissions` does."""
    from examples.iot.permissions import print_permissions  # noqa: PLC0415

    return print_permissions(options.role, PlatformSettings.of().subjects, options.format)


def _print_rows(query: str, *values: str) -> int:
    from examples.iot.database import connect  # noqa: PLC0415

    path = PlatformSettings.of().database
    if not path.exists():
        raise EvenlaneError(f"there is no database file {path}: run this where the platform runs, or set IOT_DATABASE")
    for name, content in connect(path).execute(query, values):
        say(f"{name}: {content.decode(errors='replace') if isinstance(content, bytes) else content}")
    return 0


def _print_answer(answer: Answer) -> int:
    if answer.state == "refused":
        raise EvenlaneError(answer.reason)
    say(answer.sentence())
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.iot", description=__doc__)
    parser.set_defaults(run=demo)
    parser.add_argument("--devices", type=int, default=100, metavar="N", help="simulated devices (100)")
    parser.add_argument("--projects", type=int, default=10, metavar="N", help="projects that they belong to (10)")
    parser.add_argument("--seconds", type=float, default=20, metavar="S", help="how long they send (20)")
    parser.add_argument(
        "--interval", type=float, default=1, metavar="S", help="seconds between a device's readings (1)"
    )
    parser.add_argument("--no-kill", action="store_true", help="kill no gateway and no node meanwhile")
    parser.add_argument(
        "--data-dir", type=Path, metavar="D", help="folder for data and logs (one that goes at the end)"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(run: object, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(run.__name__, help=text, description=text)
        made.set_defaults(run=run)
        return made

    made = command(up, "run the platform without simulated devices, until Ctrl-C")
    for kind, port in (("nats", 4222), ("etcd", 2379), ("mqtt", 1883)):
        made.add_argument(f"--{kind}-port", type=int, default=port, metavar="N", help=f"port of {kind} ({port})")
    made.add_argument("--nodes", type=int, default=2, metavar="N", help="nodes (2)")
    made.add_argument("--gateways", type=int, default=2, metavar="N", help="gateways (2)")
    made.add_argument(
        "--data-dir", type=Path, default=Path(".iot"), metavar="D", help="folder for data and logs (.iot)"
    )
    made = command(gateway, "run one more gateway, until Ctrl-C")
    made.add_argument("--name", default=f"gateway-{os.getpid()}", metavar="NAME", help="its name in answers and logs")
    made = command(topic, "print the MQTT topic to which a project's devices publish")
    made.add_argument("project")
    made = command(announce, "register a project, or open a closed one again")
    made.add_argument("project")
    made.add_argument("--qps", type=float, metavar="N", help="messages per second of a new project")
    made = command(close, "close a project: its waiting data is still stored, and no more is taken")
    made.add_argument("project")
    made = command(data, "print what the database holds of a project")
    made.add_argument("project")
    command(refused, "print the messages that gateways have refused, and why")
    made = command(permissions, "print the permissions of a gateway or a node, for NATS and etcd")
    made.add_argument("role", choices=["gateway", "node"])
    made.add_argument("--format", default="nats", help="nats, nsc, json or etcd (nats)")
    return parser.parse_args(arguments)


async def _until_signal(options: argparse.Namespace) -> int:
    """Run a command; SIGINT and SIGTERM cancel it."""
    running = asyncio.ensure_future(options.run(options))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return 0


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        PlatformSettings.of()  # a wrong one is reported before anything starts
        return asyncio.run(_until_signal(options))
    except EvenlaneError as error:
        print(f"iot: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"iot: the package {error.name} is missing: `make install` installs it", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
