"""The proof: scenarios, the demo, and the baselines that they are compared with.

`scenario` is the one shape of all scenarios, `registry` knows them by name. A `load` is served by the scheduler of each
of the `arms`, on the `simulator` or by one of the `runners`, which use a real `broker` or a `cluster` of node
processes. `figures` are read from what happened; a `report` shows them, and the bars that they must meet.
"""
