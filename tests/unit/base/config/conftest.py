import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder as the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
