"""P7: mistakes at the command line of the device platform: one sentence, and nothing was started."""

import pytest

from examples.iot.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "environ", "sentence"),
    [
        ([], {"IOT_SUBJECT_DATA": "x"}, "the subject data (x) must contain {project} once"),
        (["up", "--data-dir", "D"], {"IOT_QPS": "-1"}, "IOT_QPS (-1) isn't a number from 0.01 to 1,000,000"),
        (["--projects", "0", "--data-dir", "D"], {}, "100 devices of 0 projects for 20 s, each 1 s: there must be"),
        (["data", "acme"], {"IOT_DATABASE": "D/iot.db"}, "there is no database file D/iot.db"),
    ],
)
def test_mistake_is_one_sentence(capsys, monkeypatch, tmp_path, arguments, environ, sentence):
    monkeypatch.chdir(tmp_path)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert 1 == main(arguments)
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert err.startswith(f"iot: {sentence}")
    assert not (tmp_path / "D").exists()
