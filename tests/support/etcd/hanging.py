"""An etcd that hangs."""

import contextlib

import psutil

from tests.support.until import until


@contextlib.asynccontextmanager
async def hanging(server):
    """The server keeps its connections and says nothing."""
    process = psutil.Process(server.pid)
    process.suspend()
    await until(lambda: process.status() == psutil.STATUS_STOPPED)
    try:
        yield
    finally:
        process.resume()
