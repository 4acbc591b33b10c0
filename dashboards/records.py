"""Names of the series from recording rules (prometheus/shared.rules.yml): level:metric:operation. They cover all nodes
together.
"""

AGE_TARGET = "priority:evenlane_oldest_message_age_target:seconds"
AGE = "env_project_priority:evenlane_oldest_message_age_seconds:max"
AGE_OVER_TARGET = "env_project_priority:evenlane_oldest_message_age:over_target"
TIME_TO_EMPTY_TARGET = "evenlane:time_to_empty_target:seconds"
TIME_TO_EMPTY = "env_project_priority:evenlane_time_to_empty_seconds:max"
STOPPED = "env_project_priority:evenlane_stopped_queues:sum"
OFFERED_OVER_QUOTA = "env_project:evenlane_offered_over_quota:ratio"
OWN_LIMIT = "env_project:evenlane_own_limit_queues:sum"
ENDED_LATELY = "env_project_outcome:evenlane_outcomes:increase10m"
UNOWNED = "env_job:evenlane_partitions_unowned:count"
SLOTS_USED = "env:evenlane_slots_busy:ratio"
