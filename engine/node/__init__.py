"""The node: thin shells that carry out what lanes, index and scheduler decide. Data goes one way: feed, index,
schedule, handle, settle; each step is a file here.
"""

from evenlane.engine.node.node import Node

__all__ = ["Node"]
