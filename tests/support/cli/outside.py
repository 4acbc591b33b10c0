"""Runs `evenlane` in a process of its own, with pipes for its output."""

import asyncio
import sys

CODE = "from evenlane.engine.cli.main import main; main()"


async def evenlane(*arguments):
    """Return (exit code, stdout, stderr) of a command that ends by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CODE, *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()
