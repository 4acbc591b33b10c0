"""Puts with a plain NATS client and none of Evenlane's code.

Group, partition and subject follow the formulas in docs/reference/headers-and-subjects.md.

    python examples/plain_client.py acme "hello" customer-7

NATS and etcd are taken from EVENLANE_NATS and EVENLANE_ETCD. Any language can do the same.
"""

import asyncio
import json
import os
import secrets
import sys
from base64 import b64decode, b64encode
from hashlib import sha256
from http.client import HTTPConnection
from typing import Any
from uuid import uuid4

import nats

NATS = os.environ.get("EVENLANE_NATS", "nats://127.0.0.1:4222")
ETCD = os.environ.get("EVENLANE_ETCD", "127.0.0.1:2379")
ENV = os.environ.get("EVENLANE_ENV", "online")


def digest(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest(), "big")


def jump_hash(key: int, buckets: int) -> int:
    bucket, candidate = -1, 0
    while candidate < buckets:
        bucket = candidate
        key = (key * 2862933555777941757 + 1) % 2**64
        candidate = int((bucket + 1) * (2**31 / ((key >> 33) + 1)))
    return bucket


def etcd(name: str) -> dict[str, Any]:
    """The JSON under one key, by etcd's own HTTP gateway."""
    key = b64encode(f"/evenlane/{ENV}/{name}".encode()).decode()
    connection = HTTPConnection(ETCD, timeout=5)
    connection.request("POST", "/v3/kv/range", json.dumps({"key": key}))
    found = json.load(connection.getresponse()).get("kvs")
    if not found:
        sys.exit(f"etcd has no {name} in environment {ENV}: `evenlane topics set` creates a topic")
    value: dict[str, Any] = json.loads(b64decode(found[0]["value"]))
    return value


async def put(project: str, body: bytes, key: str | None) -> None:
    cluster, topic = etcd("settings"), etcd(f"accepted/{project}")
    if cluster["version"] not in (1, 2):
        sys.exit(f"environment {ENV} has a newer format, which this program doesn't know")
    if topic.get("deleted"):
        sys.exit(
            f"the topic of {project} is deleted and takes no messages: `evenlane topics set {project}` creates"
            " a new one"
        )
    if topic["state"] == "draining":
        sys.exit(f"{project} is draining and takes no messages: `evenlane topics resume {project}` ends that")
    groups, spread = topic["active"], topic["spread"]
    group = jump_hash(digest(key) % 2**64, groups) if key else secrets.randbelow(groups)
    slot = group % spread
    if cluster.get("layout", "hashed") == "consecutive":
        partition = (digest(project) + slot) % cluster["partitions"]
    else:
        partition = digest(f"{project}/{slot}" if slot else project) % cluster["partitions"]
    priority = cluster["priorities"][len(cluster["priorities"]) // 2]
    headers = {"Nats-Msg-Id": f"{project}:{uuid4()}"}  # sent again under the same id, it is stored once
    if key:
        headers["Evenlane-Key"] = key
    client = await nats.connect(NATS)
    subject = f"lanes.{ENV}.{partition}.{project}.{group}.{priority}"
    stored = await client.jetstream().publish(subject, body, headers=headers)
    print(f"{subject} -> {stored.stream}:{stored.seq}")
    await client.close()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: plain_client.py PROJECT BODY [KEY]")
    asyncio.run(put(sys.argv[1], sys.argv[2].encode(), sys.argv[3] if len(sys.argv) == 4 else None))
