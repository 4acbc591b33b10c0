"""What a message carries on the wire: headers, subjects, and integers packed as varints and columns."""
