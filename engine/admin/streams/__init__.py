"""The streams of an environment: on how many servers they are, and how that is changed while nodes run."""
