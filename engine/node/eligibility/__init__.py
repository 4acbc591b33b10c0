"""Which messages may run now."""
