"""P7, S2: the platform logs in to NATS as Evenlane does, from the same settings."""

import pytest

from evenlane import ConfigError, Unreachable
from examples.iot.connection import connect
from examples.iot.settings import PlatformSettings


@pytest.mark.parametrize(
    ("user", "content", "sentence"),
    [
        ("gateway", b"\xff\xfe", r"^nats_password_file: \S+ can't be read as text"),
        ("gateway", b"", r"^nats_password_file: \S+ is empty"),
        (None, b"nothing", r"^nats_creds_file: \S+ contains no NATS credentials"),
    ],
)
async def test_wrong_file_is_one_sentence(tmp_path, user, content, sentence):
    path = tmp_path / "secret"
    path.write_bytes(content)
    environ = {"EVENLANE_NATS_CREDS_FILE": str(path)}
    if user is not None:
        environ = {"EVENLANE_NATS_USER": user, "EVENLANE_NATS_PASSWORD_FILE": str(path)}
    with pytest.raises(ConfigError, match=sentence):
        await connect(PlatformSettings.of(environ), "a test")


def test_missing_file_and_unknown_setting_are_one_sentence(tmp_path):
    for environ, sentence in (
        ({"EVENLANE_NATS_CREDS_FILE": str(tmp_path / "none")}, r"^nats_creds_file "),
        ({"EVENLANE_NATS_CERT": str(tmp_path / "none")}, r"^nats_cert "),
        ({"EVENLANE_NATS_PASSWORT_FILE": "x"}, "did you mean EVENLANE_NATS_PASSWORD_FILE"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            PlatformSettings.of(environ)


async def test_server_that_is_gone_is_one_sentence():
    with pytest.raises(Unreachable, match=r"^NATS at nats://127\.0\.0\.1:1 does not answer"):
        await connect(PlatformSettings.of({"EVENLANE_NATS": "nats://127.0.0.1:1"}), "a test")


def test_configuration_file_counts(tmp_path, monkeypatch):
    """A gateway in the folder of evenlane.toml uses it, as a node there does."""
    (tmp_path / "evenlane.toml").write_text('nats = ["nats://elsewhere:4222"]\nreplicas = 3\n')
    monkeypatch.chdir(tmp_path)
    settings = PlatformSettings.of({}).evenlane
    assert (("nats://elsewhere:4222",), 3) == (settings.nats, settings.replicas)
