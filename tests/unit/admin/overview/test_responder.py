"""A node's side: who asks gets what the last round found, and can't harm the node."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from evenlane.engine.admin.overview import responder
from evenlane.engine.admin.overview.messages import NodeOverview
from evenlane.engine.admin.overview.responder import OverviewResponder
from evenlane.engine.core.ports import Disconnected
from tests.support.tenant_rounds import NOW, go_round, look, tenants
from tests.support.until import until


class Line:
    """A connection that notes what is sent; `down`: there is none at the moment."""

    def __init__(self):
        self.listeners, self.sent, self.down = {}, [], False

    def listen(self, subject, on_message):
        self.listeners[subject] = on_message
        return 1

    def send(self, subject, body, headers=b"", reply=""):
        if self.down:
            raise Disconnected("down")
        self.sent.append((subject, msgspec.json.decode(body, type=NodeOverview)))


@pytest.fixture(params=[None])
async def shown(request):
    """A node with five messages of acme, and how it is asked."""
    fresh = {} if request.param is None else {"fresh_ns": request.param}
    line, known = Line(), tenants()
    go_round(known, 0, look(backlog=5, reason="quota", head_at=NOW))
    node = SimpleNamespace(
        id="a", store=SimpleNamespace(max_payload=1 << 20), queues=SimpleNamespace(projects=1),
        partitions={
            number: SimpleNamespace(opened=number > 0, lane=SimpleNamespace(catching_up=number == 1))
            for number in range(5)
        },
    )  # fmt: skip
    showing = OverviewResponder(line, "x", node, known, lambda _: None, lambda: None, **fresh)
    showing.listen()

    def ask(reply="_INBOX.me"):
        line.listeners["ask.x.overview"](b"ask.x.overview", reply.encode(), b"", b"")

    yield SimpleNamespace(line=line, known=known, showing=showing, ask=ask)
    await showing.close()


async def test_who_asks_gets_what_there_is(shown):
    """Issue 7.4: a node that owns nothing answers like any other."""
    shown.ask()
    await until(lambda: shown.line.sent)
    ((reply, reported),) = shown.line.sent
    assert ("_INBOX.me", "a", 5) == (reply, reported.node, reported.rows[0].bands[1].backlog)
    assert 2 == reported.reading  # one is being opened, one's backlog is coming in


@pytest.mark.parametrize("reply", ["", "lanes.x.0.acme.0.mid", "_INBOX", "_INBOX.a\r\nPUB x 0", "_INBOX.\xe9"])
async def test_an_answer_goes_to_inboxes_alone(shown, reply):
    """Else whoever may ask could have a node write to any subject."""
    shown.ask(reply)
    shown.ask()
    await until(lambda: shown.line.sent)
    assert ["_INBOX.me"] == [to for to, _ in shown.line.sent]


@pytest.mark.parametrize("shown", [10**12], indirect=True)
async def test_many_who_ask_cost_one_answer(shown, monkeypatch):
    """Issue 7.4: many pages open at once don't add work to a node; too many of them get nothing."""
    made = []
    original = responder.encoded
    monkeypatch.setattr(responder, "encoded", lambda *args: made.append(1) or original(*args))
    for number in range(100):
        shown.ask(f"_INBOX.{number}")
    await until(lambda: shown.line.sent)
    shown.ask("_INBOX.late")
    await asyncio.sleep(0)
    assert (1, 64) == (len(made), len(shown.line.sent))


@pytest.mark.parametrize("shown", [0], indirect=True)
async def test_an_answer_is_made_anew_when_it_is_old(shown):
    shown.ask()
    await until(lambda: shown.line.sent)
    go_round(shown.known, 1, look(backlog=7, reason="quota", head_at=NOW))
    shown.ask()
    await until(lambda: len(shown.line.sent) == 2)
    assert [5, 7] == [reported.rows[0].bands[1].backlog for _, reported in shown.line.sent]


async def test_a_node_that_has_not_looked_yet_says_so(shown):
    """Its term has just begun: nothing is known of what waits in its partitions."""
    shown.known.clear()
    shown.ask()
    await until(lambda: shown.line.sent)
    assert [(5, [])] == [(reported.reading, reported.rows) for _, reported in shown.line.sent]


@pytest.mark.parametrize("shown", [0], indirect=True)
async def test_neither_a_lost_connection_nor_a_defect_ends_it(shown, monkeypatch):
    shown.line.down = True
    shown.ask()
    await until(lambda: shown.showing._task is None)
    shown.line.down = False
    with monkeypatch.context() as patch:
        patch.setattr(responder, "snapshot", lambda _: 1 / 0)
        shown.ask()
        await until(lambda: shown.showing._task is None)
    assert [] == shown.line.sent
    shown.ask()
    await until(lambda: shown.line.sent)
