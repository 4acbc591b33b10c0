"""Topics and templates as data: their fields, and how they are read."""
