"""The demo: twenty projects on real servers, one of them hot; with and without it, and first come, first served."""
