"""How fast shares move over nodes, in seconds. The simulator keeps the same time."""

EVERY_S = 1.0
"""Between two looks of a node, and between two rounds of the leader."""
SOON_S = 0.25
"""After a round until the next, if something is newly short, or short under new rules."""
CHANGED_S = 0.05
"""After a change of a topic until a node looks whether it is short of it: it may have lent what it needs now."""
DURATION_S = 3.0
"""Of a loan."""
