"""Writes a role as the configuration of nats-server, for users with a JWT, and as commands for etcdctl. Pure."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.admin.permissions.roles import Role


_ANSWER_S = 10  # how long a request may be answered

ACCOUNT = "EVENLANE"
"""The NATS account that holds the streams, in what is printed."""


def nats_config(role: Role) -> str:
    """Return a definition for the top level of nats-server's configuration. A user has it by `permissions: $NAME`."""
    lines = [
        *_comments(role),
        f'# In the server\'s users: {{ user: "{role.name}", password: "...", permissions: ${role.name}-permissions }}',
        f"{role.name}-permissions = {{",
        *_subjects("publish", role.publish),
        *_subjects("subscribe", role.subscribe),
        *([f'  allow_responses: {{ max: 1, expires: "{_ANSWER_S}s" }}'] if role.answers else []),
        "}",
    ]
    return "\n".join(lines) + "\n"


def nats_account(role: Role) -> str:
    """Return `nats_config` for an account of the user's own, which reaches only what another account exports. Raises
    ConfigError for a role that has none.
    """
    if role.exports:
        usage = f"{ACCOUNT}: {{ jetstream: enabled, exports: ${role.name}-exports, users: [...] }}"
        entries = [f'{{ service: "{each}", response: stream }}' for each in role.exports]
        name = f"{role.name}-exports"
    elif role.imports:
        usage = f"{role.name}: {{ imports: ${role.name}-imports, users: [...] }}"
        entries = [f'{{ service: {{ account: {ACCOUNT}, subject: "{each}" }} }}' for each in role.imports]
        name = f"{role.name}-imports"
    else:
        raise ConfigError("--format nats-account: only nodes, and producers with --project, have accounts of their own")
    lines = [f"# In the server's accounts: {usage}", f"{name} = [", *(f"  {each}" for each in entries), "]"]
    return nats_config(role) + "\n".join(lines) + "\n"


def nsc_commands(role: Role) -> str:
    """Return commands for a shell, to be run where `nsc` has the account's key. They make the user, or add to an
    existing one the permissions that are missing.
    """
    permissions = [("--allow-pub", each) for each in role.publish]
    permissions += [("--allow-sub", each) for each in role.subscribe]
    options = [f"{flag} {shlex.quote(each)}" for flag, each in permissions]
    options += [f"--allow-pub-response=1 --response-ttl {_ANSWER_S}s"] if role.answers else []
    lines = [
        *_comments(role, has_jwt=True),
        "# Run this with the account that has the streams. Then this prints the credentials:",
        f"#   nsc generate creds --name {role.name}",
        "set -e",
        f"nsc describe user --name {role.name} > /dev/null 2>&1 || nsc add user --name {role.name}",
        " \\\n  ".join([f"nsc edit user --name {role.name}", *options]),
    ]
    return "\n".join(lines) + "\n"


def jwt_permissions(role: Role) -> str:
    """Return a document in JSON for tools that sign JWTs of NATS. `permissions` belongs into the object `nats` of a
    user's claims, or is the `template` of a scoped signing key.
    """
    permissions: dict[str, object] = {"pub": {"allow": role.publish}, "sub": {"allow": role.subscribe}}
    if role.answers:
        permissions["resp"] = {"max": 1, "ttl": _ANSWER_S * 10**9}
    document = {
        "name": role.name,
        "settings": {key: _setting(key, value) for key, value in _settings(role, has_jwt=True)},
        "permissions": permissions,
    }
    return json.dumps(document, indent=2) + "\n"


def etcd_commands(role: Role) -> str:
    """Return commands for a shell, to be run as etcd's root. They make the role, and its user with the password that is
    on stdin. If these exist, the commands add the permissions that are missing; they change no password.
    """
    grants = [*((key, "readwrite" if key in role.read else "write") for key in role.write)]
    grants += [(key, "read") for key in role.read if key not in role.write]
    lines = [
        *_comments(role),
        "# Run this as etcd's root, with the user's password on stdin.",
        "set -e",
        f"etcdctl role get {role.name} > /dev/null 2>&1 || etcdctl role add {role.name}",
        *(_grant(role.name, key, kind) for key, kind in grants),
        f"etcdctl user get {role.name} > /dev/null 2>&1 || etcdctl user add {role.name} --interactive=false",
        f"etcdctl user grant-role {role.name} {role.name}",
    ]
    return "\n".join(lines) + "\n"


def _comments(role: Role, *, has_jwt: bool = False) -> Iterable[str]:
    yield f"# The permissions of {role.name}. Its process needs the settings:"
    for key, value in _settings(role, has_jwt=has_jwt):
        yield f"#   {key} = {json.dumps(_setting(key, value))}"


def _settings(role: Role, *, has_jwt: bool) -> Iterable[tuple[str, str]]:
    """Those of the process. A user with a JWT logs in by a file of credentials, and not by a name."""
    for key, value in role.settings.items():
        yield ("nats_creds_file", f"{role.name}.creds") if has_jwt and key == "nats_user" else (key, value)


def _setting(key: str, value: str) -> str | list[str]:
    return value.split(",") if key == "projects" else value


def _subjects(what: str, subjects: Iterable[str]) -> Iterable[str]:
    yield f"  {what}: {{ allow: ["
    for subject in subjects:
        yield f"    {json.dumps(subject)}"
    yield "  ] }"


def _grant(role: str, key: str, kind: str) -> str:
    prefix = "--prefix=true " if key.endswith("/") else ""
    return f"etcdctl role grant-permission {prefix}{role} {kind} {key}"
