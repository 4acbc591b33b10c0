"""Alerts that must fire under the load, with exactly these labels, and no other."""

from tests.prometheus.expect import NOTHING, Check, alerts
from tests.prometheus.expected.common import TARGET_S
from tests.prometheus.seen import Seen

Labels = dict[str, str]

_QUIET = (
    "TenantStarved", "SharesOneLabel", "NoNode", "NodeDown", "PartitionUnowned", "LeaseTrouble", "NodeWithoutLease",
    "PartitionsLost", "NoLeader", "NatsDisconnected", "SettleLag", "LoopBlocked", "Saturated", "PayloadFull",
    "CopiesStuck", "NodeTrouble", "StoreCantWrite", "TopicsLost", "NoTopic", "NoHandler", "EndpointPauses",
    "SubscriptionWithoutNode", "SubscriptionUnfinished",
)  # fmt: skip
"""`paused`, `hot` and `expiring` wait for their own limits, and the two competing projects get their shares."""


def firing(seen: Seen) -> list[Labels]:
    def alert(name: str, **labels: str) -> Labels:
        return {"alertname": f"Evenlane{name}", "env": "online", **labels}

    # On a slow machine the high messages of `ranked` exceed their target before the comparison begins.
    ranked_is_late = seen.oldest("ranked").low > TARGET_S["high"]
    return [
        *([alert("BacklogOld", project="ranked", priority="high")] if ranked_is_late else []),
        alert("BacklogOld", project="aged", priority="low"),
        alert("BacklogWontEmpty", project="aged", priority="low"),
        alert("QuotaRejected"),
        *(alert("MostFail", project=each) for each in ("failing", "rejected")),
        alert("SomeFail", project="hanging"),
        *(alert("OverQuota", project=each) for each in ("expiring", "holes")),
        *(alert("Paused", project=each) for each in ("paused", "purged")),
        alert("DeadLettersRising", project="failing"),
        alert("DeadLettersRising", project="rejected"),
        alert("MessagesExpire", project="expiring"),
        alert("HandlersHang", instance=seen.owner("hanging").address),
        alert("MessagesMissing"),
        alert("StrayMessages"),
    ]


def expected(seen: Seen) -> dict[str, Check]:
    due = {f"Evenlane{name}": NOTHING for name in _QUIET}
    fire = firing(seen)
    for name in {each["alertname"] for each in fire}:
        due[name] = alerts(*(_without_name(each) for each in fire if each["alertname"] == name))
    return due


def _without_name(labels: Labels) -> Labels:
    return {label: value for label, value in labels.items() if label != "alertname"}
