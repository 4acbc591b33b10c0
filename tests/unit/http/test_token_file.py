"""Token file: `evenlane up` creates one if no token is set, so that changes by HTTP work at once."""

import os
import stat

import pytest

from evenlane.engine.base.config.settings import load
from evenlane.engine.cli.run.http_options import http_token
from evenlane.engine.errors import ConfigError


def test_token_is_created_once_and_for_its_owner_only(tmp_path, capsys):
    before = os.umask(0)
    try:
        path = http_token(tmp_path)
    finally:
        os.umask(before)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert f"the token for changes by HTTP is in {path}\n" == capsys.readouterr().err
    token = load({"http_token_file": str(path)}, environ={}).settings.http_token()
    assert token is not None
    assert len(token) >= 32
    assert [path] == [*tmp_path.iterdir()]
    path.chmod(0o644)
    assert path == http_token(tmp_path)
    assert (0o600, f"{token}\n") == (stat.S_IMODE(path.stat().st_mode), path.read_text())


def test_two_folders_have_two_tokens(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert http_token(tmp_path / "a").read_text() != http_token(tmp_path / "b").read_text()


def test_unwritable_folder_raises_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"can't be written to .*/no/such/http-token: No such file or directory"):
        http_token(tmp_path / "no" / "such")
