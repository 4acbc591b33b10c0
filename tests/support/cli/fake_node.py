"""A fake node for the supervisor in tests: `fake_node.py --node=ID --lifeline=FD ...`.

`$FAKE_NODES` is a folder. The file `<ID>` in it has one line per life; the last line is for all later lives:

- `ready`: is ready, then waits for SIGTERM. `deaf`: is ready, and ignores SIGTERM. `mute`: joins, and is never ready.
- `exit N`, `joined N`: exits with code N before or after it has joined. `dies N`: joins, then exits with its lease.
- `done N`: is ready, then exits. `quits N`: is ready, and exits at SIGTERM with its lease.
- `kill`: is ready, then gets SIGKILL. `fork`: the same, and a child with all its descriptors lives for 5 s more.
- `thread`: is ready, then only its main thread ends.

It claims lease 1 in its first life, 2 in the next, and gives it back at SIGTERM and on errors. It notes lives and
signals in `<ID>.lives` and `<ID>.signals`.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from evenlane.engine.cli.run.claims import Claimant
from evenlane.engine.cli.run.lifeline import Lifeline, NodeReady

_FOLDER = Path(os.environ["FAKE_NODES"])
_FLAGS = dict(part.removeprefix("--").split("=", 1) for part in sys.argv[1:] if "=" in part)


def _note(what: str, line: object) -> None:
    with (_FOLDER / f"{_FLAGS['node']}.{what}").open("a") as file:
        file.write(f"{line}\n")


def _lived() -> int:
    path = _FOLDER / f"{_FLAGS['node']}.lives"
    return len(path.read_text().splitlines()) if path.exists() else 0


def _on_signal(number: int, _frame: object) -> None:
    _note("signals", signal.Signals(number).name)
    if word == "quits":
        sys.exit(int(code[0]))
    if not deaf:
        claimant.report_leases("online", [])
        sys.exit(0)


# `signal.pause` would sleep through a signal that comes right before it.
wakeup, _waker = socket.socketpair()
_waker.setblocking(False)
signal.set_wakeup_fd(_waker.fileno(), warn_on_full_buffer=False)
script = (_FOLDER / _FLAGS["node"]).read_text().splitlines()
word, *code = script[min(_lived(), len(script) - 1)].split()
deaf = word == "deaf"
claimant = Claimant(int(_FLAGS["claims"]))
for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(each, _on_signal)
_note("lives", os.getpid())
claimant.report_leases("online", [_lived()])  # each life has a lease of its own
line = Lifeline(int(_FLAGS["lifeline"]), 0.0)
if word == "exit":
    claimant.report_leases("online", [])
    sys.exit(int(code[0]))
line.report_joined()
if word == "joined":
    claimant.report_leases("online", [])
    sys.exit(int(code[0]))
if word == "dies":
    sys.exit(int(code[0]))
if word != "mute":
    line.ready(NodeReady(4, 7, "online"))
if word == "done":
    sys.exit(int(code[0]))
if word == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if word == "fork":
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(5)
    os._exit(0)
if word == "thread":
    threading.Thread(target=lambda: time.sleep(3600), daemon=True).start()
    ctypes.CDLL(None).pthread_exit(None)
while True:
    wakeup.recv(1)
