"""The registry of an environment's named subscriptions, as the processes of the environment read it."""
