"""A server on a free port with a node whose answers the test sets, and a client."""

import math
from contextlib import asynccontextmanager
from hashlib import sha256

import aiohttp

from evenlane.engine.admin.dead_letters.by_error import ALL
from evenlane.engine.http.app import app
from evenlane.engine.http.live_feed import LiveFeed
from evenlane.engine.http.liveness import Health
from evenlane.engine.http.puts import PutService
from evenlane.engine.http.readiness import Readiness
from evenlane.engine.http.server.auth import AccessControl
from evenlane.engine.http.server.server import HttpServer, ServerTuning
from evenlane.engine.http.topics import TopicService
from evenlane.engine.producer.producer import Producer
from evenlane.engine.telemetry.prometheus.exposition import Page
from evenlane.ring.coordination.memory.client import MemoryCoordination

QUICK = {"every_s": 0.1, "fresh_ns": 1_000_000}
"""Tuning of a live feed: ten overviews per second."""
TOKEN = "a token that nobody guesses"
OVERVIEW = {
    "env": "online", "at": "2026-11-22T16:00:00.123Z", "priorities": ["high", "mid", "low"], "tenants": [],
    "left_out": None, "nodes": [], "partitions": 8, "unowned": [],
    "totals": {"projects": 0, "backlog": 0, "in_flight": 0, "arriving": 0.0, "leaving": 0.0}, "notes": [],
}  # fmt: skip


def key_of(dead_letter):
    """The key of its error, as made of the whole text."""
    return sha256(f"{dead_letter['reason']}: {dead_letter['error']}".encode()).hexdigest()[:12]


class FakeNode:
    """Each request raises `fails` if it is set; `asked` has the arguments of reads, `changed` those of changes. It has
    no producer, and topics of its own: see ApiWorld.
    """

    def __init__(self, **tuning):
        self.fails = None
        self.not_ready = self.stuck = ""
        self.asked = []
        self.changed = []
        self.authors = []  # of changes
        self.subscriptions = []  # of reads and changes, as far as these may name one
        self.shown = OVERVIEW
        self.looked = self.remembered = 0
        self.past = []  # PastSecond each
        self.whys, self.dead, self.bodies, self.ends = {}, {}, {}, {}
        self.running = False
        self.watching = LiveFeed(self._look, self.history, **tuning)
        self.puts = PutService(Producer, "n")
        self.topics = TopicService(MemoryCoordination(), "online", "http@n", self.count_waiting)

    async def health(self):
        self._fail()
        return Health("n", "online", self.stuck)

    async def readiness(self):
        return Readiness("n", 3, 7, self.not_ready)

    async def metrics(self, accept):
        return Page(f"# {accept}\n".encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def why(self, project, priority, within, *, positions, subscription):
        self._fail()
        self.subscriptions.append(subscription)
        self.asked.append((project, priority, within, *(["positions"] if positions else [])))
        return self.whys.get(project, {"project": project})

    async def overview(self, subscription):
        self.subscriptions.append(subscription)
        return await self.watching.now()

    async def _look(self):
        self.looked += 1
        self._fail()
        return self.shown

    async def history(self):
        self.remembered += 1
        self._fail()
        return self.past

    async def dead_letters(self, subscription):
        self.subscriptions.append(subscription)
        return self

    async def list(self, project, limit, error):
        self._fail()
        self.asked.append((project, limit))
        dead_letters = [each for each in self.dead.get(project, []) if error in (None, key_of(each))]
        return self._describe(project) | {"letters": dead_letters[:limit]}

    async def errors(self, project):
        self._fail()
        groups = []
        for key in dict.fromkeys(map(key_of, self.dead.get(project, []))):
            own = [each for each in self.dead[project] if key_of(each) == key]
            groups.append({
                "key": key, "reason": own[0]["reason"], "error": own[0]["error"], "example": own[-1]["error"],
                "count": len(own), "first_at": own[0]["died_at"], "last_at": own[-1]["died_at"],
                "last_seq": own[-1]["seq"],
            })  # fmt: skip
        whole = self._describe(project)
        last = max((each["seq"] for each in self.dead.get(project, [])), default=0)
        return whole | {"grouped": whole["total"], "last_seq": last, "errors": groups, "more_errors": 0}

    def _describe(self, project):
        return {
            "project": project, "total": len(self.dead.get(project, [])), "keep_seconds": 86400.0, "replay": None,
            "drop": None, "last_replay": self.ends.get(project), "last_drop": None,
        }  # fmt: skip

    async def show(self, project, sequence):
        self._fail()
        self.asked.append((project, sequence))
        [dead_letter] = [each for each in self.dead[project] if each["seq"] == sequence]
        return dead_letter | {"body": self.bodies.get(sequence, ""), "cut": False}

    async def replay(self, project, sequence, selection, by):
        going = self._take("replay", project, sequence, selection, by)
        return self._outcome(project, {"replayed": len(going), "failed": 0, "failures": [], "stopped": ""})

    async def drop(self, project, sequence, selection, by):
        going = self._take("drop", project, sequence, selection, by)
        return self._outcome(project, {"dropped": len(going), "stopped": ""})

    def _take(self, what, project, sequence, selection, by):
        self._fail()
        self.changed.append((what, project, sequence) if selection == ALL else (what, project, *selection))
        self.authors.append(by)
        error, until = selection
        going = [
            each
            for each in self.dead.get(project, [])
            if sequence in (None, each["seq"]) and error in (None, key_of(each)) and each["seq"] <= (until or math.inf)
        ]
        self.dead[project] = [each for each in self.dead.get(project, []) if each not in going]
        return going

    def _outcome(self, project, done):
        return {"project": project, "running": True} if self.running else {"project": project, "running": False} | done

    async def count_waiting(self, project):
        self._fail()
        return 0

    async def change_state(self, project, state, by):
        self._fail()
        self.authors.append(by)
        self.changed.append((state, project))
        return {"project": project, "accepted": True}

    def _fail(self):
        if self.fails is not None:
            raise self.fails


def server_of(node, host="127.0.0.1", port=0, token=TOKEN, tuning=ServerTuning()):  # noqa: B008 - frozen
    return HttpServer(app(node, AccessControl(lambda: token)), host, port, node.watching.close, tuning)


@asynccontextmanager
async def served(node=None, host="127.0.0.1", token=TOKEN, **tuning):
    """Yields (get, node): `await get(path)` returns status, headers and text."""
    node = node or FakeNode()
    server = server_of(node, host, token=token, tuning=ServerTuning(**tuning))
    await server.open()
    async with aiohttp.ClientSession() as client:

        async def get(path, method="GET", body=None, **headers):
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            async with client.request(method, server.address + path, headers=headers, data=body) as response:
                return response.status, response.headers, await response.text()

        get.address, get.client = server.address, client
        try:
            yield get, node
        finally:
            await server.close()
