"""An etcd that hangs."""

import contextlib

import psutil

from tests.support.until import until


@contextlib.asynccontextmanager
async def hanging(server):
    """Suspend the server: it keeps its connections, and sends nothing."""
    process = psutil.Process(server.pid)
    process.suspend()
    await until(lambda: process.status() == psutil.STATUS_STOPPED)
    try:
        yield
    finally:
        process.resume()
