"""Read-only commands: `why`, `backlog`, `dlq`, `plan`, `config`, `report`."""
