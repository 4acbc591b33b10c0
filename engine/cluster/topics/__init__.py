"""Topics and templates as a process knows them."""
