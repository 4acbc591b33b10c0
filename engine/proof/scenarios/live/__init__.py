"""`live`: how soon an edited topic acts on the backlog, on every node (X4)."""
