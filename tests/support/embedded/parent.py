"""A parent process of servers, which tests end in many ways: `parent.py DATA_DIR leave|stay`.

It prints the servers' process ids as a JSON list once both serve. Then `leave` exits without stopping them, and `stay`
serves until a signal comes.
"""

import asyncio
import json
import sys

from evenlane.engine.runtime.embedded.pair import Servers


async def main(data_dir: str, then: str) -> None:
    servers = Servers(data_dir, fast=True)
    await servers.start()
    print(json.dumps([servers.nats.pid, servers.etcd.pid]), flush=True)  # noqa: T201 - the test reads it
    if then == "leave":
        return
    try:
        await servers.wait()
    finally:
        await servers.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
