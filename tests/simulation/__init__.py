"""A cluster in one process and on one seed: thousands of lives of Evenlane, each of which can be replayed.

The simulation runs the product itself: a node is an `evenlane.engine.runtime.engine.Engine` as in production. Only its
connections, which it gets by `evenlane.engine.cluster.connections.Connections`, are simulated. `script.py` draws a life
from the seed, and `world.py` runs it.

- `loop.py`: an event loop whose time is a number. Everything that a node schedules carries the node in its context, so
  a node can be paused (its callbacks wait while time goes on for others) or killed (they never run). The next node to
  run is drawn; if none can run, time jumps to the next timer. `surroundings.py` gives the product this clock, and the
  random numbers of the seed.
- `etcd.py`, `store.py`: the servers in memory, behind links (`network.py`) that delay each request and sometimes lose
  it, before or after it was carried out. A request belongs to the world: it arrives although its node is dead.
- `processes.py`: the nodes of all clusters. In a quarter of the lives there is a named subscription, too, whose nodes
  are a cluster of their own (`audits.py`). `creating.py` creates it before the first put or meanwhile, perhaps by
  creators that die one after another.
- `handling.py`: handlers return, fail, hang, ask for a pause, or kill their process. `putting.py`: the topics, some of
  them ordered, and the messages, some of which have a key, and some of which expire.
- `faults.py`, `etcd_faults.py`: crashes and restarts, pauses, cuts, lost watches, late acks, lost streams, and nodes
  that join and leave gracefully.
- `promises.py` receives what the servers carried out and what the handlers did, never a node's own view, and calls the
  checkers. Each cluster has checkers of its own, as if it were alone; what the shared streams store and lose concerns
  all of them, and `subscription_promises.py` says what a named subscription gets (K10):
  - `owners.py`: O at each start of a handler (newest epoch, living lease); Z1 whenever a partition gets an owner: how
    long it had none although nothing was wrong;
  - tests/support/promises: D at each second start of a message, the order of each key of an ordered topic, attempts and
    messages that kill their process (X11), pauses, and that a waiting key holds up no other;
  - itself: O at each append to a settle log; L at each settlement, purge and delete, and in the end (each put that was
    acknowledged is handled, dead-lettered or expired, and all is settled); K5 at each expiry.
  After the last fault and the last kill, all is owned and drained within 3 x TTL + 25 s, the streams are empty within
  30 s more, and all nodes end cleanly. `test_checkers.py` and the tests of single checkers beside it feed the checkers
  histories (`by_hand.py`) that break a promise, and histories that don't.
- `mutants.py` and the other files of mutants: the product with one defect; `test_mutants.py` shows that each is caught.

A failing seed prints how to replay it: `.venv/bin/python -m tests.simulation --seed 123 --trace`. The same seed is the
same life on any machine, as long as neither the product nor this folder nor tests/support/promises changes.
"""
