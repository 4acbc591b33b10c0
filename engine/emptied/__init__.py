"""Groups that are taken away and deleted topics go when they are empty (docs/groups.md)."""
