"""Settings: where they come from, and which values they may have."""
