"""The quota of one named subscription, where a topic sets it apart from its own."""

import msgspec


class SubscriptionQuota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the nodes of one subscription enforce in place of the topic's fields. None: the topic's."""

    qps: float | None = None  # msg/s
    burst: int | None = None  # messages that may start at once after a pause
    concurrency: int | None = None  # most messages in flight
