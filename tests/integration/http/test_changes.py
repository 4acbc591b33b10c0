"""Changes by HTTP on a real node: long replays of dead letters, and refused changes of topics."""

import aiohttp
import pytest

from evenlane.engine.base import names
from evenlane.engine.producer.put import Put
from tests.ledger.world import ProcessWorld
from tests.support.http.serving import TOKEN
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
async def world(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    async with ProcessWorld(tmp_path, duplicate_window=2) as world:
        yield world


class Caller:
    def __init__(self, client, base):
        self._client, self._base = client, base

    async def get(self, path):
        async with self._client.get(self._base + path) as response:
            return response.status, await response.json()

    async def post(self, path, body=None):
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with self._client.post(self._base + path, json=body, headers=headers) as response:
            return response.status, await response.json()


@pytest.fixture
async def caller(world):
    world.node_a = await world.node(http_port=0, http_token_file=world.folder / "token")
    async with aiohttp.ClientSession() as client:
        yield Caller(client, await world.address())


@pytest.mark.full
async def test_long_replay_reports_progress_and_ends_with_node(world, caller):
    """Messages not yet put when the node ends are still dead letters, and none is lost."""
    await world.topics("acme", qps=2, groups=1, burst=1)
    producer = await world.producer()
    await world.put(producer, [Put("acme", b"x", id=f"m{n}", headers={"order": "once reject"}) for n in range(20)])

    async def dead():
        status, reported = await caller.get("/api/dead/acme?limit=7")
        return reported if status == 200 and reported["total"] == 20 else None

    reported = await until(dead, 60)
    assert (7, None) == (len(reported["letters"]), reported["replay"])
    status, dead_letter = await caller.get(f"/api/dead/acme/{reported['letters'][0]['seq']}")
    assert (200, "x", False) == (status, dead_letter["body"], dead_letter["cut"])
    status, reported = await caller.post("/api/dead/acme/replay", {"all": True})
    assert (202, True) == (status, reported["running"])
    status, reported = await caller.post("/api/dead/acme/replay", {"all": True})
    assert (409, "the dead letters of acme are already being replayed: wait until that has ended") == (
        status, reported["error"]
    )  # fmt: skip
    _, reported = await caller.get("/api/dead/acme")
    assert reported["replay"] is not None
    assert 20 == reported["replay"]["total"]
    assert 0 < reported["total"] < 20
    assert 0 == await world.node_a.stop()
    assert {"Reject: as ordered"} == world.node_a.raised()
    await world.node(name="node-b")
    left = await (await world.dead_letters()).ids()
    assert 0 < len(left) < 20
    await world.handled(*(world.acknowledged.keys() - left))
    assert not left & {*world.ids()}


async def test_refused_changes_are_one_sentence(world, caller):
    """A draining or deleted topic takes the command to come back, not a click."""
    await world.topics("acme", state="draining")
    for path, body, status, sentence in (
        ("/api/topics/nobody/pause", None, 404, "project 'nobody' has no topic"),
        ("/api/topics/no.body/pause", None, 400, "is not valid"),
        ("/api/topics/acme/resume", None, 409, "topic acme is draining: `evenlane topics resume acme` changes that"),
        ("/api/topics/acme/pause", None, 409, "topic acme is draining: `evenlane topics pause acme` changes that"),
        ("/api/dead/nobody/replay", {"all": True}, 404, "project 'nobody' has neither a topic nor dead letters"),
        ("/api/dead/acme/replay", {"all": True}, 404, "project 'acme' has no dead letters"),
        ("/api/dead/acme/replay", {"seq": 5}, 404, "there is no dead letter 5"),
        ("/api/dead/_stray/replay", {"all": True}, 400, "_stray holds messages that no queue had"),
    ):
        reported = await caller.post(path, body)
        assert status == reported[0], reported
        assert sentence in reported[1]["error"]
        assert "\n" not in reported[1]["error"]
    await world.topics("bolt")
    assert (200, "paused") == await _state(caller.post("/api/topics/bolt/pause"))
    assert (200, "active") == await _state(caller.post("/api/topics/bolt/resume"))
    status, reported = await caller.get("/api/dead/_stray")
    assert 200 == status, reported
    await world.topics("gone", state="paused")
    await world.put(await world.producer(), [Put("gone", b"x")])
    await world.etcd.delete(names.key("online", "topics", "gone"))

    async def is_shown_as_deleted():
        _, overview = await caller.get("/api/overview")
        rows = [(row["project"], row["state"], row["deleted"]) for row in overview["tenants"]]
        return ("gone", "paused", True) in rows

    await until(is_shown_as_deleted)
    for verb in ("resume", "pause"):
        status, answer = await caller.post(f"/api/topics/gone/{verb}")
        assert (409, f"topic gone was deleted: `evenlane topics {verb} gone` changes that") == (status, answer["error"])
    assert await world.etcd.get(names.key("online", "topics", "gone")) is None


async def _state(response):
    status, reported = await response
    return status, reported["in_force"]["state"]
