"""Logs failed attempts, dead-lettered messages, and paused topics, at a limited rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.log_throttle import LogThrottle
from evenlane.engine.core.message.copies import UNROUTABLE_PROJECT
from evenlane.engine.core.message.error_text import failure, find_origin, format_traceback, shorten
from evenlane.engine.core.message.log_fields import lane_fields, message_fields
from evenlane.engine.node.settle.last_errors import LastErrors

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.handler_exceptions import Pause
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.wire.header_values import Refusal

_log = structlog.get_logger(__name__)

_MOST_DEAD_LETTERS = 5  # dead letters per project


class FailureLog:
    """Throttles these log events. In each ten seconds it logs the first failed attempt per project and type of error,
    and the first five dead letters per project; the rest is summed up in one line.

    `last_errors` has each project's last error, logged or not. `error_texts`: log the text of a handler's exception,
    and its traceback at level debug, too. `on_dead(message, reason)` is called for each dead letter of a queue, logged
    or not.
    """

    def __init__(self, *, error_texts: bool = True, on_dead: Callable[[Message, str], None] | None = None) -> None:
        self._error_texts, self._on_dead = error_texts, on_dead
        self.last_errors = LastErrors()
        self._failed = LogThrottle(1, _log_more_failed)
        self._dead = LogThrottle(_MOST_DEAD_LETTERS, _log_more_dead)
        self._refused = LogThrottle(1, _log_more_refused)
        self._paused = LogThrottle(1, _log_more_paused)
        self._missing = LogThrottle(_MOST_DEAD_LETTERS, _log_more_missing)
        self._stuck = LogThrottle(1, _log_more_stuck)

    def log_failure(self, message: Message, error: BaseException, follows: str) -> None:
        """An attempt ended with `error`."""
        if self.last_errors.is_due(message.project):
            self.last_errors.note(message.project, failure(error, with_text=self._error_texts))
        if self._failed.may_log(message.project, type(error).__name__):
            _log.warning(
                "an attempt failed",
                **message_fields(message),
                error=failure(error, with_text=self._error_texts),
                where=find_origin(error),
                then=follows,
            )
            if self._error_texts:
                _log.debug("a failed attempt's traceback", **message_fields(message), exception=format_traceback(error))

    def dead(self, message: Message, reason: str) -> None:
        """The message was dead-lettered. Its error was noted before: `reason` only says why it is not tried again."""
        if self._on_dead is not None:
            self._on_dead(message, reason)
        if self._dead.may_log(message.project):
            _log.warning("dead-lettered", **message_fields(message), reason=reason)

    def log_poison_message(self, message: Message, reason: str) -> None:
        """The message has ended its process so often that it isn't started again."""
        if self.last_errors.is_due(message.project):
            self.last_errors.note(message.project, reason)
        _log.warning("a message has killed its process: it goes to the dead letters", **message_fields(message))

    def log_refusal(self, message: Message, refusal: Refusal) -> None:
        """A header of the message is invalid: its sender publishes to NATS directly."""
        if refusal.fatal and self.last_errors.is_due(message.project):
            self.last_errors.note(message.project, str(refusal))
        if self._refused.may_log(message.project, refusal.header):
            _log.warning(
                "a header is not valid: its message goes to the dead letters" if refusal.fatal
                else "a header is not valid, and is passed over",
                **message_fields(message), header=refusal.header, reason=str(refusal),
            )  # fmt: skip

    def unroutable(self, lane: Lane, subject: str, reason: str) -> None:
        """The message is unroutable: its sender made up the subject."""
        if self._dead.may_log(UNROUTABLE_PROJECT):
            _log.warning(
                "dead-lettered: a message belongs to no queue",
                **lane_fields(lane), subject=shorten(subject), reason=reason,
            )  # fmt: skip

    def log_missing(self, lane: Lane, sequence: int, project: str | None) -> None:
        """A message whose sequence was known isn't in its stream."""
        if self._missing.may_log(project or ""):
            _log.warning(
                "a message that was indexed is gone from its stream",
                project=project, **lane_fields(lane), sequence=sequence,
            )  # fmt: skip

    def log_stuck(self, lane: Lane, project: str, error: BaseException, tries: int, waiting: int) -> None:
        """A copy of the message can't be put."""
        if self._stuck.may_log(project):
            _log.warning(
                "a copy can't be put: its message stays where it is", project=project, **lane_fields(lane),
                tries=tries, error=str(error), waiting=waiting,
            )  # fmt: skip

    def log_pause(self, project: str, pause: Pause) -> None:
        """A handler asked for a pause. Its reason is for people who ask `why`."""
        if self._paused.may_log(project):
            _log.info("a topic pauses", project=project, seconds=round(pause.after, 3), reason=shorten(str(pause)))

    def stop(self) -> None:
        self._failed.stop()
        self._dead.stop()
        self._refused.stop()
        self._paused.stop()
        self._missing.stop()
        self._stuck.stop()


def _log_more_failed(count: int, projects: dict[str, int], others: int) -> None:
    _log.warning("more attempts failed", count=count, projects=projects, others=others)


def _log_more_paused(count: int, projects: dict[str, int], others: int) -> None:
    _log.info("topics paused more often", count=count, projects=projects, others=others)


def _log_more_dead(count: int, projects: dict[str, int], others: int) -> None:
    _log.warning("more were dead-lettered", count=count, projects=projects, others=others)


def _log_more_refused(count: int, projects: dict[str, int], others: int) -> None:
    _log.warning("more headers are not valid", count=count, projects=projects, others=others)


def _log_more_missing(count: int, projects: dict[str, int], others: int) -> None:
    _log.warning("more messages are gone from their streams", count=count, projects=projects, others=others)


def _log_more_stuck(count: int, projects: dict[str, int], others: int) -> None:
    _log.warning("more copies can't be put", count=count, projects=projects, others=others)
