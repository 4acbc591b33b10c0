"""Dead letters: listing, dropping, replay."""
