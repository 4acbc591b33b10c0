"""How one node's throughput changes with its queues, and a server's with its nodes. Arms alternate over the rounds.

    python -m benchmarks.scaling [--messages N] [--rounds R] [--only queues,processes] [--json]

30 queues, 60,000 queues           one node with an empty handler
1 process, 2 processes             nodes with an empty handler: the server and the nodes share the cores
1 busy process, 2 busy processes   handlers that compute for 50 us: the nodes need nearly all of the CPU time

The CPU times of the server and of the nodes, in us a message, show what limits the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import psutil
import uvloop

from benchmarks.busy_cluster import BusyCluster, TimedNode, running_server
from evenlane.engine.base.garbage_collector import tune_gc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FEW, MANY = 30, 60_000
HANDLE_US = 50.0
RATIOS = {
    "30 queues / 60,000 queues": ("30 queues", "60,000 queues", 1.3, False),
    "2 processes / 1 process": ("2 processes", "1 process", None, True),
    "2 busy processes / 1 busy process": ("2 busy processes", "1 busy process", 1.7, True),
}
_STOP_S = 10


class Scaling:
    """The arms on one server. `figures` has a value per round."""

    def __init__(self, url: str, server_pid: int, options: argparse.Namespace) -> None:
        self._url, self._server, self._options = url, psutil.Process(server_pid), options
        self.figures: dict[str, list[float]] = {}
        self._env = 0

    async def run(self) -> None:
        only, messages = self._options.only.split(","), self._options.messages
        for _ in range(self._options.rounds):
            if "queues" in only:
                for queues in (FEW, MANY):
                    await self._measure(f"{queues:,} queues", messages, queues=queues)
            if "processes" in only:
                for number, name in ((1, "process"), (2, "processes")):
                    await self._measure(f"{number} {name}", messages, nodes=number)
                    await self._measure(f"{number} busy {name}", messages // 10, nodes=number, handle_us=HANDLE_US)

    async def _measure(
        self, figure: str, count: int, *, queues: int = 3_000, nodes: int = 1, handle_us: float = 0.0
    ) -> None:
        self._env += 1
        env, partitions = f"e{self._env}", self._options.partitions
        cluster = BusyCluster(self._url, partitions, queues)
        store = await cluster.open_store(env)
        subjects = list(cluster.busy_subjects(env, queues + count))
        # Nodes know their queues: a first message has been in each of them.
        await cluster.publish(store, subjects[:queues])
        async with AsyncExitStack() as stack:
            processes = []
            for index in range(nodes):
                owned = range(index, partitions, nodes)
                mine = [int(subject.split(".")[2]) in owned for subject, _ in subjects]
                first, share = sum(mine[:queues]), sum(mine[queues:])
                arguments = (self._url, env, partitions, queues, index, nodes, first, share, handle_us)
                processes.append(await stack.enter_async_context(_node(arguments)))
            await cluster.publish(store, subjects[queues:])
            gc.collect()
            before = sum(self._server.cpu_times()[:2])
            for process in processes:
                process.stdin.write(b"go\n")
            took = [json.loads(await process.stdout.readline()) for process in processes]
            server = sum(self._server.cpu_times()[:2]) - before
        await cluster.close_store(store, env)
        self._note(figure, count / max(seconds for seconds, _ in took))
        self._note(f"{figure}: us of CPU a message, nodes", sum(cpu for _, cpu in took) / count * 1e6)
        self._note(f"{figure}: us of CPU a message, server", server / count * 1e6)

    def _note(self, figure: str, value: float) -> None:
        self.figures.setdefault(figure, []).append(value)
        print(f"{figure}: {value:,.1f}", file=sys.stderr)


@asynccontextmanager
async def _node(arguments: tuple[object, ...]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A node in a process of its own, which is ready to be timed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.scaling", "--node", *map(str, arguments)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        yield process
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def serve(arguments: list[str]) -> None:
    """A node's process: prints `ready`, and after a line on stdin, the seconds and CPU seconds for its messages."""
    url, env, *numbers, handle_us = arguments
    partitions, queues, index, nodes, first, share = map(int, numbers)
    cluster = BusyCluster(url, partitions, queues)
    store = await cluster.open_store(env, prepared=False)
    timed = TimedNode(cluster, store, env, share, handle_us=float(handle_us))
    await timed.start(range(index, partitions, nodes), handled=first)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps(await timed.run()), flush=True)
    await timed.node.stop(_STOP_S)
    await store.close()


async def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    async with running_server() as server:
        scaling = Scaling(server.url, server.pid, options)
        await scaling.run()
    return scaling.figures


def ratios_of(figures: dict[str, list[float]]) -> dict[str, list[float]]:
    """The ratios of each round."""
    return {
        name: [a / b for a, b in zip(figures[above], figures[below], strict=True)]
        for name, (above, below, _, _) in RATIOS.items()
        if above in figures
    }


def show(figures: dict[str, list[float]]) -> None:
    for name, values in figures.items():
        print(f"{name:52}{statistics.median(values):12,.1f}   {'  '.join(f'{each:,.1f}' for each in values)}")
    for name, values in ratios_of(figures).items():
        median, (_, _, limit, at_least) = statistics.median(values), RATIOS[name]
        bar = ""
        if limit is not None:
            met = median >= limit if at_least else median <= limit
            bar = f"{'at least' if at_least else 'at most'} {limit}: {'ok' if met else 'MISSED'}"
        print(f"{name:52}{median:12.2f}   {'  '.join(f'{each:.2f}' for each in values)}   {bar}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Throughput by the number of queues, and of processes.")
    parser.add_argument("--messages", type=int, default=600_000)
    parser.add_argument("--partitions", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="queues,processes", help="arms to run, separated by commas")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--node", nargs=9, help=argparse.SUPPRESS)
    options = parser.parse_args()
    tune_gc()
    if options.node:
        uvloop.run(serve(options.node))
        return
    figures = uvloop.run(measure(options))
    if options.json:
        print(json.dumps({"all": figures, "ratios": ratios_of(figures)}, indent=2))
    else:
        show(figures)


if __name__ == "__main__":
    main()
