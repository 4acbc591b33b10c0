"""`evenlane` as a process of its own, whose output goes into pipes."""

import asyncio
import sys

CODE = "from evenlane.engine.cli.main import main; main()"


async def evenlane(*arguments):
    """(exit code, stdout, stderr) of a command that ends by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CODE, *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()
