"""What is caught where bytes that anybody may have written are decoded: they are put aside, with a reason."""

import msgspec

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What msgspec raises for bytes that aren't what they should be: text in no encoding, say, numbers of 10,000 digits, or
lists in lists in lists.
"""
