"""Settings: their sources, and their valid values."""
