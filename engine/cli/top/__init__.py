"""`evenlane top`: what all nodes do, live in the terminal or line by line."""
