"""Command `evenlane top`: shows the activity of all nodes, live in the terminal or line by line."""
