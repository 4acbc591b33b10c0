"""Overview responder of a node: clients get the result of the last round, and can't harm the node."""

from types import SimpleNamespace

import msgspec
import pytest

from evenlane.engine.admin.overview.messages import NodeOverview
from evenlane.engine.admin.overview.responder import OverviewResponder
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.node.settle.last_errors import LastErrors
from tests.support.node.world import turns
from tests.support.tenant_rounds import NOW, go_round, look, tenants
from tests.support.until import until


class Line:
    """A connection that keeps what is sent. While it is `down`, sending fails."""

    def __init__(self):
        self.listeners, self.sent, self.failed, self.down = {}, [], 0, False

    def listen(self, subject, on_message):
        self.listeners[subject] = on_message
        return 1

    def send(self, subject, body, headers=b"", reply=""):
        if self.down:
            self.failed += 1
            raise Disconnected("down")
        self.sent.append((subject, msgspec.json.decode(body, type=NodeOverview)))


@pytest.fixture(params=[None])
async def served(request):
    """The responder of a node with five messages of acme. `built` counts its answers; `defects` of them fail."""
    fresh = {} if request.param is None else {"fresh_ns": request.param}
    line, known = Line(), tenants()
    go_round(known, 0, look(backlog=5, reason="quota", head_at=NOW))
    node = SimpleNamespace(
        id="a", store=SimpleNamespace(max_payload=1 << 20), queues=SimpleNamespace(projects=1),
        last_errors=LastErrors(),
        partitions={
            number: SimpleNamespace(opened=number > 0, lane=SimpleNamespace(is_catching_up=number == 1))
            for number in range(5)
        },
    )  # fmt: skip
    made = SimpleNamespace(line=line, known=known, built=0, defects=0)

    def condition():
        made.built += 1
        if made.built <= made.defects:
            raise ZeroDivisionError

    def ask(reply="_INBOX.me"):
        line.listeners["ask.x.overview"](b"ask.x.overview", reply.encode(), b"", b"")

    made.ask = ask
    responder = OverviewResponder(line, "x", node, known, lambda _: None, condition, **fresh)
    responder.listen()
    yield made
    await responder.close()


async def test_answer_has_rows_and_partitions_that_are_read(served):
    """E7."""
    served.ask()
    await until(lambda: served.line.sent)
    ((reply, answer),) = served.line.sent
    assert ("_INBOX.me", "a", 5) == (reply, answer.node, answer.rows[0].bands[1].backlog)
    assert 2 == answer.reading  # one is being opened, and one is catching up


@pytest.mark.parametrize("reply", ["", "lanes.x.0.acme.0.mid", "_INBOX", "_INBOX.a\r\nPUB x 0", "_INBOX.\xe9"])
async def test_answers_go_to_inboxes_only(served, reply):
    """Otherwise a request could make a node write to any subject."""
    served.ask(reply)
    served.ask()
    await until(lambda: served.line.sent)
    assert ["_INBOX.me"] == [to for to, _ in served.line.sent]


@pytest.mark.parametrize("served", [10**12], indirect=True)
async def test_many_requests_cost_one_answer(served):
    """Many open pages add no work to a node, and too many of them get no answer."""
    for number in range(100):
        served.ask(f"_INBOX.{number}")
    await until(lambda: served.line.sent)
    served.ask("_INBOX.late")
    await turns()
    assert (1, 64) == (served.built, len(served.line.sent))


@pytest.mark.parametrize("served", [0], indirect=True)
async def test_old_answer_is_replaced(served):
    served.ask()
    await until(lambda: served.line.sent)
    go_round(served.known, 1, look(backlog=7, reason="quota", head_at=NOW))
    served.ask()
    await until(lambda: len(served.line.sent) == 2)
    assert [5, 7] == [answer.rows[0].bands[1].backlog for _, answer in served.line.sent]


async def test_all_partitions_count_as_read_before_the_first_round(served):
    """The session has just begun, and no backlog is known."""
    served.known.clear()
    served.ask()
    await until(lambda: served.line.sent)
    assert [(5, [])] == [(answer.reading, answer.rows) for _, answer in served.line.sent]


@pytest.mark.parametrize("served", [0], indirect=True)
async def test_lost_connection_or_defect_does_not_end_the_responder(served):
    served.defects = 1
    served.ask()
    await until(lambda: served.built == 1)
    served.line.down = True
    served.ask()
    await until(lambda: served.line.failed)
    served.line.down = False
    assert [] == served.line.sent
    served.ask()
    await until(lambda: served.line.sent)
