"""What crosses the wire: headers, subjects, records and messages, written and read."""
