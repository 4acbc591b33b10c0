"""Log entries about a connection to NATS, as documented."""

import pytest
from structlog.testing import capture_logs

from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from tests.support.log_tables import events, logged
from tests.support.until import until


@pytest.fixture
def log():
    with capture_logs() as lines:
        yield lines


@pytest.mark.real
async def test_lost_and_restored_connection_is_logged_and_close_is_not(tmp_path, log):
    server = NatsServer(tmp_path)
    await server.start()
    connection = Connection(NatsOptions((server.url,)), "a test")
    await connection.open()
    await server.kill()
    await until(lambda: "NATS is out of reach" in events(log))
    await server.start()
    await until(lambda: "NATS is back" in events(log))
    length = len(log)
    await connection.close()
    await server.stop()
    logged(log, "NATS is out of reach", connection="a test")
    logged(log, "NATS is back", connection="a test")
    assert [] == [line for line in log[length:] if line["event"].startswith("NATS")]
