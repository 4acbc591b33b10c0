"""Command `evenlane subscriptions`."""
