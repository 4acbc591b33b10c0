"""The number of requests to etcd, by its own count."""

import asyncio
import re
from collections import Counter

from evenlane.engine.runtime.embedded import ports
from evenlane.engine.runtime.embedded.etcd import EtcdServer

_LINE = re.compile(r'grpc_server_msg_received_total\{grpc_method="(\w+)".*\} (\S+)')


async def received(etcd: EtcdServer) -> Counter[str]:
    """Messages received since etcd's start, by method. Each message of a stream counts."""
    reader, writer = await asyncio.open_connection(ports.HOST, etcd.port)
    try:
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = (await reader.read()).decode()
    finally:
        writer.close()
    counts: Counter[str] = Counter()
    for method, count in _LINE.findall(text):
        counts[method] += int(float(count))
    return counts
