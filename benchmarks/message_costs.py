"""Measures what a message costs a NATS server: bytes on the disk, puts per second, CPU time of a put.

    python -m benchmarks.message_costs [--messages N] [--body BYTES] [--rounds R] [--folder DIR]

One nats-server with a file store, one producer, a topic of 20 groups. Once with `sync_interval: always`, as in
production, and once without. The folder must be on the disk that the server will have: it decides the first figure.
`evenlane plan size` has such figures (engine/admin/plan/costs.py).
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from typing import NamedTuple

import psutil

from evenlane import Producer, Settings, Topics
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.embedded.pair import Servers
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions

KEYS = 500


class Cost(NamedTuple):
    puts_per_s: float
    cpu_us: float
    stored_bytes: float


async def measure(folder: str, messages: int, body: int, *, fast: bool) -> Cost:
    async with Servers(folder, fast=fast) as servers:
        settings = Settings(nats=(servers.nats.url,), etcd=(servers.etcd.endpoint,))
        async with Topics(settings=settings) as topics:
            await topics.set("customer-1234", qps=1000)
        server = psutil.Process(servers.nats.pid)
        async with Producer(settings=settings) as producer:
            await producer.put("customer-1234", b"the first makes the streams")
            puts = [Put("customer-1234", b"x" * body, key=f"key-{each % KEYS}") for each in range(messages)]
            before, cpu, began = await _stored(settings), sum(server.cpu_times()[:2]), time.monotonic()
            await producer.put_many(puts)
            took, used = time.monotonic() - began, sum(server.cpu_times()[:2]) - cpu
        stored = await _stored(settings) - before
    return Cost(messages / took, used / messages * 1e6, stored / messages)


async def _stored(settings: Settings) -> int:
    """The bytes of all lanes, as the server counts them."""
    connection = Connection(NatsOptions(settings.nats), "benchmark")
    await connection.open()
    try:
        streams = (await connection.api("STREAM.LIST"))["streams"] or ()
    finally:
        await connection.close()
    return sum(each["state"]["bytes"] for each in streams if each["config"]["name"].startswith("LANES_"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--body", type=int, default=1_000, metavar="BYTES")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", metavar="DIR")
    given = parser.parse_args()
    print("| sync_interval | puts/s | CPU of the server per put | stored besides the body |\n| --- | --- | --- | --- |")
    for sync, fast in (("always", False), ("2m", True)):
        costs = []
        for _ in range(given.rounds):
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                costs.append(asyncio.run(measure(folder, given.messages, given.body, fast=fast)))
        medians = [statistics.median(each) for each in zip(*costs, strict=True)]
        puts_per_s, cpu_us, stored = medians
        print(f"| `{sync}` | {puts_per_s:,.0f} | {cpu_us:.1f} us | {stored - given.body:.0f} bytes |")


if __name__ == "__main__":
    main()
