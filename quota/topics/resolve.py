"""Resolves a topic for the nodes of one subscription: it may have a quota of its own, and a named one never pushes."""

from msgspec.structs import replace

from evenlane.quota.topics.topic import Accepted, Topic, default_burst, intern


def resolve(accepted: Accepted, subscription: str | None) -> Accepted:
    """The accepted topic with the quota that this subscription has, and without those of others. An endpoint gets each
    message once, from the unnamed subscription; others have handlers. The topic stays unchanged for the unnamed one
    (None), whose leader publishes it.
    """
    if subscription is None or (accepted.topic.subscriptions is None and accepted.topic.push is None):
        return accepted
    return replace(accepted, topic=intern(_resolve(accepted.topic, subscription)))


def _resolve(topic: Topic, subscription: str) -> Topic:
    quota = (topic.subscriptions or {}).get(subscription)
    if quota is None:
        return replace(topic, subscriptions=None, push=None)
    qps = topic.qps if quota.qps is None else quota.qps
    burst = quota.burst
    if burst is None:  # the default follows the rate; a burst that the topic sets holds for all subscriptions
        burst = default_burst(qps) if topic.burst == default_burst(topic.qps) else topic.burst
    concurrency = topic.concurrency if quota.concurrency is None else quota.concurrency
    return replace(topic, qps=qps, burst=burst, concurrency=concurrency, subscriptions=None, push=None)
