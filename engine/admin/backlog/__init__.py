"""Reading and dropping what waits."""
