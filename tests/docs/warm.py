"""Runs `evenlane` commands in processes that are forked from one with all imports done: they take a second of CPU.

`python -m tests.docs.warm SOCKET` serves until its stdin ends. `python warm.py SOCKET ARGUMENT...` runs `evenlane
ARGUMENT...` there, with its own folder, environment, standard streams and exit code. It imports only a few modules of
the standard library, so that it starts quickly.
"""

import os
import signal
import socket
import sys

_COUNT = 4  # bytes of a length
_FAILED = 1


def ask(path: str, arguments: list[str]) -> int:
    """Have a command run; return its exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        variables = [f"{name}={value}" for name, value in os.environ.items()]
        folder = os.getcwd()  # noqa: PTH109 - importing pathlib takes long
        text = "\0".join([folder, str(len(arguments)), *arguments, *variables]).encode(errors="surrogateescape")
        socket.send_fds(server, [len(text).to_bytes(_COUNT)], [0, 1, 2])
        server.sendall(text)
        code = server.recv(1)
    return code[0] if code else _FAILED


def serve(path: str) -> None:
    """Answer until stdin ends."""
    import select
    from importlib import import_module

    for name in (
        "evenlane.engine.runtime.engine", "evenlane.engine.cluster.connections", "evenlane.engine.base.log_setup",
        "evenlane.engine.store.jetstream.backend", "evenlane.engine.cli.progress", "evenlane.engine.runtime.run_loop",
        "evenlane.engine.producer.producer", "evenlane.engine.admin.why.client", "evenlane.engine.admin.backlog.purge",
        "pydantic.type_adapter", "rich.console", "rich.table",
    ):  # fmt: skip
        import_module(name)
    import_module("evenlane.engine.cli.main").root()  # loads all commands
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{path}.new")
        server.listen()
        os.rename(f"{path}.new", path)  # noqa: PTH104 - a client that sees it can connect
        while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
            client, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _run(client)
            client.close()


def _run(client: socket.socket) -> None:
    """Run one command, in the child."""
    code = _FAILED
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        head, streams, *_ = socket.recv_fds(client, _COUNT, 3)
        text = client.makefile("rb").read(int.from_bytes(head)).decode(errors="surrogateescape")
        folder, count, *words = text.split("\0")
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(dict(variable.split("=", 1) for variable in words[int(count) :]))
        from evenlane.engine.cli.main import run

        code = run(words[: int(count)])
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else _FAILED
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        client.sendall(bytes([code]))
        os._exit(code)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
    serve(sys.argv[1])
