"""Puts an order into a project at a steady rate, until SIGTERM: `python -m examples.producer acme --every 0.5`."""

import argparse
import asyncio
import signal

from evenlane import Producer, UnknownProject


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project")
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS")
    given = parser.parse_args()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    count = 0
    async with Producer() as producer:
        while not stop.is_set():
            try:
                await producer.put(given.project, f"order {count + 1}".encode())
                count += 1
            except UnknownProject as error:  # its topic may come yet
                print(error, flush=True)
            try:
                await asyncio.wait_for(stop.wait(), given.every)
            except TimeoutError:
                continue
    print(f"put {count}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
