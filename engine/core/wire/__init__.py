"""Wire formats of messages and records: headers, subjects, and integers packed as varints and columns."""
