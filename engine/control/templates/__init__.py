"""Templates: topics for projects that appear without one."""
