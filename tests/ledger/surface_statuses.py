"""The statuses of known loads, in their words, and whether all surfaces show them so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.ledger.cli import evenlane
from tests.support.status_words import different_words, statuses_of, words, wrong_figures
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.ledger.surface_world import SurfaceWorld
    from tests.ledger.surfaces import Seen


class Expected(NamedTuple):
    """A status. `sentence` and `remedy` have # for each figure; `remedy` is the end of what to do."""

    name: str
    severity: str
    sentence: str
    remedy: str = ""


def _failing(project: str, severity: str, how: str) -> Expected:
    remedy = (
        f"mend its handler, or what it calls; `evenlane dlq list {project} --env online` shows dead letters,"
        f" `evenlane topics pause {project} --env online` lets the rest wait meanwhile"
    )
    return Expected("failing", severity, f"{how} RuntimeError: attempt # fails as ordered", remedy)


def _expiring(project: str) -> Expected:
    remedy = f"`evenlane topics set {project} --ttl DURATION --env online` lets them wait for longer"
    return Expected("expiring", "warning", "#/s expire before a handler begins, # % of what leaves", remedy)


def _paused(project: str) -> Expected:
    remedy = f"`evenlane topics resume {project} --env online` ends the pause"
    return Expected("paused", "info", "paused since #: # wait", remedy)


_SOME_FAIL = "# % of its attempts fail, #/s of #/s, the last one with"
_OVER = Expected(
    "over_quota", "warning", "it offers # x its quota: #/s arrive, #/s are allowed; # wait",
    "its producer slows down, or a quota of #/s clears it in #, which is # x the quota",
)  # fmt: skip
_OK = Expected("ok", "ok", "# wait")
STATUSES = {
    "failing": _failing("failing", "critical", "everything fails since #:"),
    "third": _failing("third", "warning", _SOME_FAIL),
    "ordered": _failing("ordered", "warning", _SOME_FAIL),
    "over": _OVER,
    "brief": _expiring("brief"),
    "kept": _expiring("kept"),
    "paused": _paused("paused"),
    "due": _paused("due"),
    "later": _OK,
    "drained": Expected("draining", "info", "draining: it takes no new messages; # wait"),
    "gone": _OK,
    "deleted": _OVER,
}
"""The first status of these projects while the loads run."""
DELETED = {
    "gone": _OK,
    "deleted": Expected(
        "deleted", "warning", "its topic was deleted while messages waited: # wait",
        "`evenlane topics drain deleted --env online` has them handled,"
        " `evenlane backlog purge deleted --env online` drops them",
    ),
}  # fmt: skip
"""The only status of these, once their topics are deleted: while nothing waits, and while messages do."""
_FINE = {"ok", "info"}


def expected_of(status: Mapping[str, Any], expected: Expected) -> bool:
    """Whether a status is the expected one, in the expected words."""
    said = (status["name"], status["severity"], words(status["sentence"]))
    return said == expected[:3] and words(status["remedy"]).endswith(expected.remedy)


def wrong_words(seen: Seen, projects: Iterable[str]) -> list[str]:
    """Return a sentence for each contradiction between surfaces, and for each figure that isn't its answer's own."""
    found = []
    for project in projects:
        answers = seen.answers(project)
        wrong = different_words({name: statuses_of(answer) for name, answer in answers.items()})
        wrong += [f"{name}: {each}" for name, answer in answers.items() for each in wrong_figures(answer)]
        found += [f"{project}: {each}" for each in wrong]
    return found


async def show_statuses(shown: SurfaceWorld, expected: Mapping[str, Expected] = STATUSES) -> None:
    """Wait until each project has been shown with its status, the same on all surfaces. They may not look at the
    same moment, and a quota that has a token left just then isn't the reason why others wait. But at no look may one
    say of a status what another doesn't.
    """
    missing = dict(expected)
    last: dict[str, object] = {}

    async def all_shown() -> bool:
        seen = await shown.read()
        assert [] == wrong_words(seen, expected)
        for project, status in list(missing.items()):
            last[project] = found = {name: statuses_of(each) for name, each in seen.answers(project).items()}
            if len(found) == 2 and all(expected_of(each[0], status) for each in found.values()):
                del missing[project]
        return not missing

    try:
        await until(all_shown, 60, "all statuses")
    except AssertionError as error:
        left = [(name, status, last.get(name)) for name, status in missing.items()]
        raise AssertionError(f"{error}; {left}") from None


class Deletion:
    """Deleted topics, from the command on: "gone", of which nothing waits, and "deleted", of which messages do."""

    def __init__(self, shown: SurfaceWorld) -> None:
        self._shown = shown

    async def delete(self) -> None:
        """Delete the topics, and wait until all surfaces show it. A surface may show a deletion with an older backlog,
        so the backlog of "gone" must be 0 on all of them first.
        """
        await until(self._is_idle, 30, "the last messages of 'gone' to be handled")
        for project in DELETED:
            assert (await evenlane(self._shown.world, "topics", "delete", project))["accepted"]
        await until(self._are_deleted, 30, "the deletion on all surfaces")
        await show_statuses(self._shown, DELETED)
        top = {tenant["project"]: tenant for tenant in (await evenlane(self._shown.world, "top"))["tenants"]}
        seen = await self._shown.read()
        assert [] == self.wrong(seen)
        assert [] == self.wrong(seen._replace(overview={**seen.overview, **top}))

    async def is_gone(self) -> bool:
        """Whether no surface knows the topic without messages any more. Until then, they show it as deleted."""
        seen = await self._shown.read()
        assert [] == self.wrong(seen)
        return all(each["state"] is None for each in seen.answers("gone").values())

    def wrong(self, seen: Seen) -> list[str]:
        """Return a sentence for each surface that shows a deleted topic as live, or in other trouble than its own."""
        found = wrong_words(seen, DELETED)
        for project, expected in DELETED.items():
            for surface, answer in seen.answers(project).items():
                statuses = statuses_of(answer)
                live = answer["state"] is not None and not answer["deleted"]
                if live or len(statuses) > 1 or not expected_of(statuses[0], expected):
                    found.append(f"{project}: {surface} has {answer['state']}, {answer['deleted']}, {statuses}")
        return found

    async def _is_idle(self) -> bool:
        seen = await self._shown.read()
        return not any(each["backlog"] for each in seen.answers("gone").values())

    async def _are_deleted(self) -> bool:
        """Whether all do. Those that don't yet show it may show nothing worse than before."""
        seen = await self._shown.read()
        severities = {status["severity"] for each in seen.answers("gone").values() for status in statuses_of(each)}
        assert severities <= _FINE, seen.answers("gone")
        return all(each["deleted"] for project in DELETED for each in seen.answers(project).values())
