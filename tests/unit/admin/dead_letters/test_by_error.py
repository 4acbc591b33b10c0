"""K4: dead letters by error: groups, and the replay or drop of one of them."""

from collections import Counter

import pytest

from evenlane.engine.admin.dead_letters.by_error import ErrorTally, Selection, error_key
from evenlane.engine.admin.dead_letters.client import NoSuchDeadLetter
from tests.support.dead_letters import bury

ORDERS, USERS = "ValueError: no such order 17", "KeyError: 'user-4'"


async def fill(place):
    """Dead letters 1 to 6: three errors of orders, two of users, and one of another project."""
    for number in range(5):
        error = ORDERS.replace("17", str(number)) if number % 2 == 0 else USERS.replace("4", str(number))
        await bury(place.store, f"m{number}", Evenlane_Error=error)
    await bury(place.store, "theirs", project="other", Evenlane_Error=ORDERS)


async def keys(place):
    return {group.error: group.key for group in (await place.dead_letters.by_error("acme")).groups()}


async def test_errors_are_counted_with_first_and_last(place):
    await fill(place)
    found = (await place.dead_letters.by_error("acme")).groups()
    assert [("ValueError: no such order <n>", 3, 5), ("KeyError: 'user-<n>'", 2, 4)] == [
        (group.error, group.count, group.last_seq) for group in found
    ]
    letters = await place.dead_letters.oldest("acme", 10)
    assert (letters[0].died_at, letters[4].died_at) == (found[0].first, found[0].last)
    assert "failed <n> times" == found[0].reason
    assert "ValueError: no such order 4" == found[0].example
    assert found[0].document().keys() >= {"key", "count", "first_at", "last_at"}


async def test_one_error_is_listed(place):
    await fill(place)
    key = (await keys(place))["KeyError: 'user-<n>'"]
    assert [2, 4] == [each.sequence for each in await place.dead_letters.oldest("acme", 10, key)]
    assert [2] == [each.sequence for each in await place.dead_letters.oldest("acme", 1, key)]


async def test_drop_of_an_error_leaves_others_and_later_ones(place):
    """Only those up to the sequence that was shown are touched."""
    await fill(place)
    key = (await keys(place))["ValueError: no such order <n>"]
    await bury(place.store, "late", Evenlane_Error=ORDERS)
    progress = []
    dropped = await place.dead_letters.drop(
        "acme", selection=Selection(key, 5), on_progress=lambda *counts: progress.append(counts)
    )
    assert (3, [2, 4, 6, 7]) == (dropped, place.dead())
    assert (3, 3) == progress[-1]


async def test_replay_of_an_error_leaves_others(place):
    await fill(place)
    key = (await keys(place))["KeyError: 'user-<n>'"]
    progress = []
    done = await place.dead_letters.replay("acme", selection=Selection(key), on_progress=progress.append)
    assert (2, [], "") == (done.replayed, done.failed, done.stopped)
    assert 2 == progress[-1].total
    assert ([1, 3, 5, 6], Counter(["m1", "m3"])) == (place.dead(), place.queued())


async def test_all_up_to_a_sequence(place):
    await fill(place)
    assert 3 == await place.dead_letters.drop("acme", selection=Selection(until=3))
    assert [4, 5, 6] == place.dead()


@pytest.mark.parametrize("act", ["drop", "replay"])
async def test_error_that_no_dead_letter_has_is_refused(place, act):
    await fill(place)
    with pytest.raises(NoSuchDeadLetter, match="project 'acme' has no dead letters with the error 'abc' up to 6"):
        await getattr(place.dead_letters, act)("acme", selection=Selection("abc"))
    assert 6 == len(place.dead())


async def test_more_dead_letters_than_one_look_reads(place):
    await place.fill(2_300)
    tally = await place.dead_letters.by_error("acme")
    [group] = tally.groups()
    assert (2_300, 2_300) == (tally.counted, group.count)
    assert 1_500 == (await place.dead_letters.by_error("acme", 1_500)).counted
    assert 2_300 == await place.dead_letters.drop("acme", selection=Selection(group.key))


async def test_key_is_that_of_the_group(place):
    await fill(place)
    letters = await place.dead_letters.oldest("acme", 10)
    tally = ErrorTally()
    tally.add(letters)
    assert {group.key for group in tally.groups()} == {error_key(each) for each in letters}
    assert 2 == len(tally.groups())
