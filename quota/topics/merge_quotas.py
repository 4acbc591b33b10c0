"""Merges changes into the quotas that a spec sets for single subscriptions."""

from collections.abc import Mapping

from evenlane.quota.topics.fields import SUBSCRIPTION_QUOTA


def merge_quotas(old: object, changes: Mapping[str, object]) -> dict[str, object] | None:
    """The quotas by subscription after the changes, unchecked. None as an entry, or as a part of one, restores the
    topic's own quota. Returns None if no subscription is left with a quota of its own.
    """
    known = old if isinstance(old, Mapping) else {}
    merged = {**known, **{name: _merge_quota(known.get(name), quota) for name, quota in changes.items()}}
    return {name: quota for name, quota in merged.items() if quota is not None} or None


def _merge_quota(old: object, changes: object) -> object:
    if not isinstance(changes, Mapping) or any(part not in SUBSCRIPTION_QUOTA for part in changes):
        return changes  # its rule names what is wrong with it
    merged = {**(old if isinstance(old, Mapping) else {}), **changes}
    return {part: value for part, value in merged.items() if value is not None} or None
