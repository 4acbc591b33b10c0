"""Wire formats: headers, subjects, records and messages, encoded and decoded."""
