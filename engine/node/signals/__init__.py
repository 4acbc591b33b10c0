"""What parts of the node share without knowing one another: state with one writer, and signals that wake."""
