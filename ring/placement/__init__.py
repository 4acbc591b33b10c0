"""Which node gets which partition: consistent hashing with bounded loads."""
