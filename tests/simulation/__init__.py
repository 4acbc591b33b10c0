"""A cluster in one process, on one seed: thousands of lives of Evenlane, each of which can be replayed.

What runs is the product itself: a node is an `evenlane.engine.runtime.engine.Engine` as in production, and only what it
reaches by `evenlane.engine.cluster.connections.Connect` is ours. `world.py` puts a life of `nodes.py` together, which
`script.py` drew from the seed.

- `loop.py`: an event loop whose time is a number. Everything a node schedules carries the node in its context, so a
  node can be paused (its callbacks wait while time goes on for others) or killed (they never run). Which node runs next
  is drawn; when none can, time jumps to the next timer. `surroundings.py` gives the product this clock, and chance.
- `etcd.py`, `store.py`: the servers in memory behind links (`network.py`) that delay each request and lose it now and
  then, before or after it was carried out. It is the world that carries a request: it arrives though its node is dead.
- `handling.py`: what handlers do: return, fail, hang, ask for a pause, or kill their process. `putting.py`: the topics,
  some of them ordered, and the messages, of which some have one of a few keys, and some expire.
- `faults.py`: crash and restart, pauses, cuts and silence, lost watches, late acks, lost streams, each with what it
  touches; beside them nodes that come and go gracefully, which are no faults.
- `promises.py` watches, from what servers carried out and handlers did, never from what a node believes; it tells
  - `owners.py`: O at each handler start (newest epoch, living lease); Z1 whenever a partition gets an owner: how long
    it had none although nothing was wrong;
  - `repeats.py`: D at each second start of a message: a fault must have touched the first one's node while it ran or
    before it could be settled;
  - `order.py`: the order of each key of an ordered topic; `progress.py`: that a key that waits holds up no other;
  - `attempts.py`: the numbers of attempts, messages that kill their process (X11), pauses;
  - and itself looks at O at each append to a settle log, L at each settle, purge and delete, and in the end (every
    acknowledged put handled, dead or expired, all settled), K5 at each expiry. `history.py` is what they remember.
  When the faults and the last kill are over all must be owned and drained within 3 x TTL + 25 s, and all nodes end
  cleanly. `test_checkers.py` and `test_order_checker.py` show each of these histories (`by_hand.py`) that break its
  promise, and such that don't.
- `mutants.py`, `attempt_mutants.py`: the product with one thing wrong; `test_mutants.py` shows that each is caught.

A seed that fails says how to see it again: `.venv/bin/python -m tests.simulation --seed 123 --trace`. The same seed is
the same life on any machine, as long as neither the product nor this folder changes.
"""
