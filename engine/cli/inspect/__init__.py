"""Commands that show an environment: `why`, `backlog`, `dlq`, `plan`, `config`. `backlog` and `dlq` also change it."""
