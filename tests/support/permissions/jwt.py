"""An operator of NATS with one account, as `nsc` makes them: JWTs signed by nkeys, and a resolver in memory."""

from __future__ import annotations

import base64
import json
import os
import time

import nkeys

_UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
_ACCOUNT = _UNLIMITED | {"conn": -1, "imports": -1, "exports": -1, "leaf": -1, "wildcards": True}
_JETSTREAM = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}


class Operator:
    """`server_config` is that of a nats-server; `user` makes a user of the account."""

    def __init__(self) -> None:
        self._operator, self._account, system = (
            make_key(kind)[1]
            for kind in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT)
        )
        accounts = [
            f"{_name(key)}: {_sign(self._operator, key, 'account', {'limits': limits})}"
            for key, limits in ((self._account, _ACCOUNT | _JETSTREAM), (system, _ACCOUNT))
        ]
        self.server_config = "\n".join(
            [
                f"operator: {_sign(self._operator, self._operator, 'operator', {})}",
                f"system_account: {_name(system)}",
                "resolver: MEMORY",
                *("resolver_preload {", *accounts, "}"),
            ]
        )

    def user(self, permissions: dict[str, object] | None = None) -> str:
        """The content of a user's credentials file. `permissions` are those of its claims; None: all."""
        seed, user = make_key(nkeys.PREFIX_BYTE_USER)
        return credentials(_sign(self._account, user, "user", _UNLIMITED | (permissions or {})), seed)


def make_key(kind: int) -> tuple[bytes, nkeys.KeyPair]:
    """(seed, key pair)"""
    seed = nkeys.encode_seed(os.urandom(32), kind)
    return seed, nkeys.from_seed(bytearray(seed))


def credentials(token: str, seed: bytes) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed.decode()}\n------END USER NKEY SEED------\n"
    )


def _name(key: nkeys.KeyPair) -> str:
    return bytes(key.public_key).decode()


def _sign(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, kind: str, claims: dict[str, object]) -> str:
    """A JWT about the subject."""
    document = {
        "jti": kind, "iat": int(time.time()), "iss": _name(issuer), "name": kind, "sub": _name(subject),
        "nats": {"version": 2, "type": kind} | claims,
    }  # fmt: skip
    head = _part({"typ": "JWT", "alg": "ed25519-nkey"}) + b"." + _part(document)
    return (head + b"." + base64.urlsafe_b64encode(issuer.sign(head)).rstrip(b"=")).decode()


def _part(document: dict[str, object]) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=")
