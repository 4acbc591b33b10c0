"""Names of the metrics, for code that builds dashboards and rules (docs/reference/metrics.md). Units are base units.
Each metric has the label `env`, and for a named subscription `subscription`; a comment above each part lists its other
labels.
"""

# project, priority, reason
WAITING_SECONDS = "evenlane_waiting_seconds_total"
WAITING_MESSAGE_SECONDS = "evenlane_waiting_message_seconds_total"
WAITING_QUEUES = "evenlane_waiting_queues"

# project, priority, outcome
OUTCOMES = "evenlane_outcomes_total"

# project, priority
BACKLOG = "evenlane_backlog_messages"
OLDEST = "evenlane_oldest_message_age_seconds"
IN_FLIGHT = "evenlane_in_flight_messages"
ARRIVED = "evenlane_arrived_messages_total"
ARRIVAL_RATE = "evenlane_arrival_rate"
DRAIN_RATE = "evenlane_drain_rate"
TIME_TO_EMPTY = "evenlane_time_to_empty_seconds"
ATTEMPTS = "evenlane_attempts_total"
TENANT_DWELL = "evenlane_tenant_dwell_seconds_total"
TENANT_HANDLING = "evenlane_tenant_handling_seconds_total"
MISSING_MESSAGES = "evenlane_missing_messages_total"

# project
QUOTA = "evenlane_quota_rate"
FAIR_SHARE = "evenlane_fair_share_ratio"

# priority; histograms
DWELL = "evenlane_dwell_seconds"
HANDLING = "evenlane_handling_seconds"

# of the node as a whole
NODE = "evenlane_node_info"  # node, version
LEADER = "evenlane_leader"
GENERATION = "evenlane_plan_generation"
PARTITIONS = "evenlane_partitions"
OWNED = "evenlane_partitions_owned"
EPOCH = "evenlane_partition_epoch"  # partition
END_SEQUENCE = "evenlane_partition_end_sequence"  # partition
SETTLED_SEQUENCE = "evenlane_partition_settled_sequence"  # partition
PURGED_SEQUENCE = "evenlane_partition_purged_sequence"  # partition
MOVES = "evenlane_partition_moves_total"  # how
LEASE_AGE = "evenlane_lease_age_seconds"
LEASE_LEFT = "evenlane_lease_left_seconds"
SETTLE_LAG = "evenlane_settle_lag_seconds"
INDEX = "evenlane_index_messages"
PAYLOAD = "evenlane_payload_bytes"
PAYLOAD_BUDGET = "evenlane_payload_budget_bytes"
SLOTS = "evenlane_slots"
SLOTS_BUSY = "evenlane_slots_busy"
PENDING_COPIES = "evenlane_pending_copies"
CONNECTED = "evenlane_connected"  # server
DUPLICATES = "evenlane_duplicates_total"  # cause
MISSING = "evenlane_missing_sequences_total"
STRAY = "evenlane_stray_messages_total"
LOOP_LAG = "evenlane_loop_lag_seconds"
LOOP_BLOCKED = "evenlane_loop_blocked_seconds_total"
ENDED_BLOCKED = "evenlane_ended_blocked_seconds_total"
TROUBLE = "evenlane_node_trouble"  # kind
PROJECTS = "evenlane_projects"
DESIRED_NODES = "evenlane_desired_nodes"
SUBSCRIPTION_NODES = "evenlane_subscription_nodes"  # subscription, state
PROJECTS_LEFT_OUT = "evenlane_projects_left_out"
ROUND = "evenlane_sampling_round_seconds"
TOPICS_REFUSED = "evenlane_topics_refused"
TOPIC_REFUSALS = "evenlane_topic_refusals_total"  # where

OTHER = "other"
"""Value of the label `project` for all projects that aren't among the busiest."""

OUTCOMES_OF = ("handled", "retried", "dead", "expired", "dropped")
"""Outcomes of a message or an attempt. Expired messages that are kept as dead letters count as `expired`."""

MOVES_OF = ("acquired", "released", "lost")
"""Kinds of partition moves."""

STATES_OF = ("creating", "active", "deleting")
"""States of a subscription."""

DUPLICATES_OF = ("crash", "hung", "void")
"""Reasons why a message may be handled twice: its process crashed while it ran, its handler exceeded the ack deadline,
or its stream was replaced while it ran.
"""
