"""`delay`: how exactly delayed messages start when they are due."""
