"""Errors that a user of Evenlane can meet. The text is one sentence: what is wrong, where, what would be right."""

from typing import Self


def hint(command: str, env: str, subscription: str = "") -> str:
    """A command for use in a sentence: in backticks, and with `--env`, as the reader's default may differ. With
    `--subscription` unless that is empty.
    """
    own = f" --subscription {subscription}" if subscription else ""
    return f"`evenlane {command} --env {env}{own}`"


def public_name(error: BaseException) -> str:
    """Return the name of the error's class, or of its nearest base class that is in this module, if it has one."""
    public = (each.__name__ for each in type(error).__mro__ if each.__module__ == __name__)
    return next(public, type(error).__name__)


class EvenlaneError(Exception):
    """Base of all errors that Evenlane raises on purpose."""


class ConfigError(EvenlaneError):
    """A setting, flag, file or cluster fact is wrong; nothing was started."""


class InvalidName(EvenlaneError):
    """A project, environment, priority, key, id or header that isn't allowed in a subject, key or header."""


class InvalidPut(EvenlaneError):
    """An argument of a put is wrong: its delay, due time, ttl or group; nothing was sent."""


class UnknownProject(EvenlaneError):
    """The project has no accepted topic in this environment."""

    @classmethod
    def of(cls, project: str, env: str, so: str = "") -> Self:
        """Build the error. `so` is a further clause of the text, such as the consequence; it begins with a comma."""
        makes = hint(f"topics set {project} --qps 100", env)
        return cls(f"project {project!r} has no topic in environment {env!r}{so}: {makes} creates one")


class TopicDraining(EvenlaneError):
    """The project's topic takes no new messages: it is being emptied, or was deleted."""

    @classmethod
    def of(cls, project: str, env: str, so: str = "", *, deleted: bool) -> Self:
        """Build the error. `so` is a further clause of the text, such as the consequence; it begins with a comma."""
        how, again = ("was deleted", "restores its topic") if deleted else ("is draining", "ends that")
        resume = hint(f"topics resume {project}", env)
        return cls(f"project {project!r} {how} and takes no messages{so}: {resume} {again}")


class InvalidTopic(EvenlaneError):
    """A topic's field is wrong; the text names field and reason."""


class RevisionConflict(EvenlaneError):
    """A topic's spec is no longer at the revision that the change expects: nothing was written."""


class PayloadTooLarge(EvenlaneError):
    """Body and headers together exceed the server's limit."""


class BacklogFull(EvenlaneError):
    """The queue or topic holds as many messages as it may."""


class NotAcknowledged(EvenlaneError):
    """The store didn't confirm in time. The text says whether the message may be stored, or isn't."""


class PutRefused(EvenlaneError):
    """The store has refused the message for another reason: it is not stored, and trying again won't help."""


class ProducerClosed(EvenlaneError):
    """A producer was used before its `async with` began or after it ended."""


class Unreachable(EvenlaneError):
    """A server (NATS or etcd) doesn't answer."""


class PortUnavailable(EvenlaneError):
    """A server can't listen on a port, for example because the port is taken."""


class DataInUse(EvenlaneError):
    """Another process runs servers on the same data directory."""


class NodeIdInUse(EvenlaneError):
    """Another running node has the same id."""


class Fenced(EvenlaneError):
    """A newer epoch owns the lane: nothing more is settled under this one."""


class UnknownEpoch(Fenced):
    """The settle log was written by an owner that etcd has lost: under `epoch`, which it claimed under `lease`."""

    def __init__(self, text: str, epoch: int, lease: int) -> None:
        super().__init__(text)
        self.epoch, self.lease = epoch, lease
