"""Help of commands and groups: the complete first sentence, an example, and nothing that isn't installed."""

import re

import pytest

from evenlane.engine.cli.main import root, run


def _commands(group, path=()):
    """Yield (words, whether it is a group) for each command below `group`, and for `group` itself."""
    yield path, True
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), False


ALL = dict(_commands(root()))
GROUPS = [path for path, is_group in ALL.items() if is_group]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_has_an_example_of_the_command(path, capsys):
    assert 0 == run([*path, "--help"])
    out, err = capsys.readouterr()
    assert "" == err
    example = out.partition("Example:\n")[2].partition("\n\n")[0]
    lines = [line.strip() for line in example.splitlines()]
    assert [line for line in lines if re.match(" ".join(("evenlane", *path)) + r"\b", line)]
    assert 0 == run([*path, "-h"])
    assert out == capsys.readouterr().out


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_names_no_file_of_the_documentation(path, capsys):
    """An installed package has none."""
    assert 0 == run([*path, "--help"])
    assert not re.search(r"docs/|\.md\b", capsys.readouterr().out)


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
@pytest.mark.parametrize("columns", ["80", "200"])
def test_list_of_commands_truncates_no_sentence(path, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert 0 == run([*path, "--help"])
    shown = " ".join(capsys.readouterr().out.partition("Commands:\n")[2].split())
    assert "..." not in shown
    group = root()
    for name in path:
        group = group.commands[name]
    for name, command in group.commands.items():
        assert f"{name} {command.get_short_help_str(1_000)}" in shown
