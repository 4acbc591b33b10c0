"""Sharing of one quota between nodes: division, loans and rounds."""
