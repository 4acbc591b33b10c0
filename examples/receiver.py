"""An endpoint for a topic with `push`, which checks the signature, and handles each message once. Needs only Python.

    mkdir secrets && echo change-me > secrets/acme.key
    python examples/receiver.py secrets/acme.key 8088
    evenlane topics set acme --qps 10 --push '{"url": "http://127.0.0.1:8088/", "secret_ref": "acme.key"}'
    EVENLANE_PUSH_PRIVATE=true EVENLANE_PUSH_SECRETS=secrets evenlane run --handler evenlane.engine.push:handle

A secret that begins with `whsec_` is base64 after that: use the library of www.standardwebhooks.com.
"""

import base64
import hmac
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECRETS = Path(sys.argv[1]).read_text().split()
done: set[str] = set()  # in production: a unique column in the same transaction as the work


def is_genuine(identity: str, timestamp: str, signatures: str, body: bytes) -> bool:
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > 300:
        return False  # too old: it may be a replayed recording
    signed = b"%b.%b.%b" % (identity.encode(), timestamp.encode(), body)
    right = [base64.b64encode(hmac.digest(key.encode(), signed, "sha256")) for key in SECRETS]
    given = [each.removeprefix("v1,").encode() for each in signatures.split()]
    return any(hmac.compare_digest(one, other) for one in right for other in given)


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        identity, *rest = (self.headers.get(f"webhook-{part}", "") for part in ("id", "timestamp", "signature"))
        if not is_genuine(identity, *rest, body):
            self.answer(401)
            return
        if identity not in done:
            print(f"{identity}, attempt {self.headers['evenlane-attempt']}: {body.decode()}", flush=True)
            done.add(identity)
        self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log no requests."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Receiver).serve_forever()
