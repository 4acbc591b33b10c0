"""Commands that read: `why`, `backlog`, `dlq`, `plan`, `config`, `report`."""
