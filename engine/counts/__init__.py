"""How many messages wait of the projects with a `max_backlog`: nodes tell it, producers go by it (docs/producer.md)."""
