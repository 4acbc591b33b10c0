"""The errors to catch where untrusted bytes are decoded."""

import msgspec

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""The exceptions that msgspec raises for malformed bytes, such as text in an invalid encoding, numbers of 10,000
digits, or deeply nested lists.
"""
