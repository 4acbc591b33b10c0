"""Dead letter client: list, show and drop on the store in memory (K4, X5, E13)."""

from collections import Counter

import pytest

from evenlane.engine.admin.dead_letters.client import NoSuchDeadLetter
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import UnknownProject
from tests.support.dead_letters import bury


async def test_oldest_lists_the_projects_dead_letters_without_bodies(place):
    await place.fill(3)
    await bury(place.store, "theirs", project="other")
    await bury(place.store, "m3", body=b"last")
    found = await place.dead_letters.oldest("acme", 10)
    assert [(1, "m0"), (2, "m1"), (3, "m2"), (5, "m3")] == [(each.sequence, each.id) for each in found]
    assert (b"", 4) == (found[-1].body, found[-1].size)
    assert [1, 2] == [each.sequence for each in await place.dead_letters.oldest("acme", 2)]
    assert (4, 1) == (await place.dead_letters.count("acme"), await place.dead_letters.count("other"))


async def test_get_returns_the_body(place):
    await place.fill(2)
    assert b"m1" == (await place.dead_letters.get("acme", 2)).body


async def test_stray_messages_are_listed_and_dropped(place):
    await place.store.put("dead.online._stray", h.encode({h.ID: "_stray:LANES_online_3:9:1"}), b"x")
    assert 1 == await place.dead_letters.count("_stray")
    assert [1] == [each.sequence for each in await place.dead_letters.oldest("_stray", 5)]
    assert 1 == await place.dead_letters.drop("_stray")
    assert 0 == await place.dead_letters.count("_stray")


@pytest.mark.parametrize("act", ["get", "drop", "replay"])
@pytest.mark.parametrize(
    ("project", "sequence", "kind", "sentence"),
    [
        (
            "acme",
            1,
            NoSuchDeadLetter,
            "dead letter 1 no longer exists: it was replayed or dropped, or its time (30d) ran",
        ),
        ("acme", 3, NoSuchDeadLetter, "dead letter 3 does not belong to acme but to other"),
        ("acme", 4, NoSuchDeadLetter, "there is no dead letter 4 in environment 'online': the newest is 3"),
        ("nobody", 2, UnknownProject, "project 'nobody' has neither a topic nor dead letters in environment 'online'"),
        ("nobody", 9, UnknownProject, "project 'nobody' has neither a topic nor dead letters"),
    ],
)
async def test_missing_dead_letter_is_explained_in_one_sentence(place, act, project, sequence, kind, sentence):
    await place.fill(2)
    await bury(place.store, "theirs", project="other")
    await place.dead_letters.drop("acme", 1)
    with pytest.raises(kind) as caught:
        await getattr(place.dead_letters, act)(project, sequence)
    assert sentence in str(caught.value)
    assert ([2, 3], Counter()) == (place.dead(), place.queued())


@pytest.mark.parametrize("act", ["drop", "replay"])
async def test_project_without_dead_letters_is_refused(place, act):
    with pytest.raises(NoSuchDeadLetter, match="project 'acme' has no dead letters in environment 'online'"):
        await getattr(place.dead_letters, act)("acme")
    with pytest.raises(UnknownProject):
        await getattr(place.dead_letters, act)("nobody")


async def test_drop_removes_all_dead_letters_of_the_project(place):
    await place.fill(700)
    await bury(place.store, "theirs", project="other")
    progress = []
    assert 700 == await place.dead_letters.drop("acme", on_progress=lambda *counts: progress.append(counts))
    assert [701] == place.dead()
    assert (700, 700) == progress[-1]
    assert {700} == {total for _, total in progress}
    assert sorted(progress) == progress
    assert 2 <= len(progress)


async def test_dead_letter_that_arrives_during_a_drop_stays(place, monkeypatch):
    await place.fill(3)
    scan = place.store.scan

    async def late(*arguments):
        await bury(place.store, "late")
        return await scan(*arguments)

    monkeypatch.setattr(place.store, "scan", late)
    assert 3 == await place.dead_letters.drop("acme")
    assert [4] == place.dead()
