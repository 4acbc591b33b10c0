"""Checkers of the promises in docs/contributing/requirements.md: one set for the simulation and the ledger tests.

The simulation calls them while a cluster runs, with what its servers carried out and its handlers did
(tests/simulation/promises.py). The ledger tests replay what the handlers of real processes noted
(tests/ledger/promises.py). Neither asks a node for its view.

| promise | checker | called by |
| --- | --- | --- |
| L: nothing acknowledged is lost | `unended` in `history.py` | both |
| D: a fault repeats a bounded set of messages | `repeats.py` | both |
| O: one epoch at a time | `epochs.py`, `owner_keys.py` | both; the simulation also compares with etcd and leases |
| K6: the order of a key | `key_order.py` | both |
| E13, X11: attempts, killers, pauses | `attempts.py` | the simulation |
| W: progress | `progress.py` | the simulation |
| Q, V, Z5: quotas, neighbours, generations | `rates.py` | the ledger tests |

`history.py` has the records that the checkers work on. `fault_kinds.py` lists the faults, and what each may cost.
"""
