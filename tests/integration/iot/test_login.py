"""S2: a gateway's login to NATS, on a real server that requires one."""

import pytest

from evenlane import EvenlaneError
from examples.iot.connection import connect
from examples.iot.settings import PlatformSettings
from tests.support.permissions.guarded import GuardedServers
from tests.support.until import until

pytestmark = pytest.mark.real
USER = "node"


@pytest.fixture
async def servers(tmp_path):
    made = GuardedServers(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def test_new_password_needs_no_restart(servers):
    """S2: the server ends the login; the next one reads the file again."""
    connection = await connect(PlatformSettings(evenlane=servers.settings(USER)), "a test")
    ended = connection.stats["reconnects"]
    servers.write_password(USER, "another-one")
    servers.change_nats_password(USER, "another-one")
    await until(lambda: connection.stats["reconnects"] > ended and connection.is_connected)
    await connection.jetstream().account_info()
    await connection.close()


async def test_refused_login_is_one_sentence(servers, tmp_path):
    """S2: a wrong password, and the inbox of another user."""
    (tmp_path / "wrong").write_text("wrong")
    for wrong, sentence in (
        ({"nats_password_file": tmp_path / "wrong"}, r"^NATS at \S+ refuses: the credentials are wrong"),
        ({"nats_inbox": "_INBOX.other"}, r"^NATS at \S+ refuses: user node may not subscribe to its reply subjects"),
    ):
        with pytest.raises(EvenlaneError, match=sentence):
            await connect(PlatformSettings(evenlane=servers.settings(USER, **wrong)), "a test")
