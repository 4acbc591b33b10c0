"""Why a queue waits."""
