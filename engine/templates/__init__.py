"""Topics that are made by a template, for projects that appear without one (docs/groups.md)."""
