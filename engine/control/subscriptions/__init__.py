"""Creates and deletes named subscriptions, and shows them."""
