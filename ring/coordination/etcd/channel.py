"""One connection to etcd: its address, its options, and the meaning of its errors."""

import _thread
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from evenlane.ring.coordination.etcd.protos import install
from evenlane.ring.coordination.ports import CoordinationError, Denied, LeaseGone, Unavailable

install()
# gRPC's fork handlers sometimes kill a child between fork and exec; no child here uses gRPC without exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import etcd3  # noqa: E402 - needs the stand-ins
import grpc  # noqa: E402

_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # Detects a silently dead peer within 8 s. etcd punishes pings that come more often than every 5 s, hence 6.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),  # used by newer releases of gRPC, whose default is a minute
    ("grpc.http2.max_pings_without_data", 0),
    # Reconnect soon after a restart: the default backoff grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Follow a name to its new address as soon: by default gRPC asks for it every 30 s at most.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # By default channels share connections, and a fresh client would get the broken one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    # etcd is on the internal network; a proxy for the web must not be used.
    ("grpc.enable_http_proxy", 0),
)
_CLOSING_S = 2.0
_ROUND_ROBIN = ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}')


@dataclass(frozen=True, slots=True)
class Address:
    """Endpoints and credentials of etcd. With TLS, all members' certificates must name the first host. `resolve`
    returns a host's IPv4 address, or raises OSError.
    """

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str | Callable[[], str | None] | None = field(default=None, repr=False)  # may be read at each login
    ca_cert: str | None = None
    cert_key: str | None = None
    cert_cert: str | None = None
    deadline_s: float = 2.0
    read_expiry: Callable[[str], str | None] = lambda _pem: None  # the date on which a certificate (PEM) expires
    resolve: Callable[[str], str] = socket.gethostbyname

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("no etcd endpoint is given: at least one HOST:PORT is needed")
        for endpoint in self.endpoints:
            host, _, port = endpoint.rpartition(":")
            if not host or "/" in endpoint or not port.isascii() or not port.isdigit() or int(port) > 65535:
                raise ValueError(f"etcd endpoint {endpoint!r} is not valid: HOST:PORT is needed")

    def __str__(self) -> str:
        return ",".join(self.endpoints)

    def target(self) -> str:
        """The target for gRPC, which takes one name, or a list of addresses: these are the present ones of the names. A
        name that can't be resolved now is left out. Blocks. Raises Unavailable.
        """
        if len(self.endpoints) == 1:
            return self.endpoints[0]
        if all(_version(endpoint) == 6 for endpoint in self.endpoints):
            return "ipv6:" + ",".join(self.endpoints)
        return "ipv4:" + ",".join(self._resolved())

    def _resolved(self) -> list[str]:
        found, unknown = [], []
        for endpoint in self.endpoints:
            host, _, port = endpoint.rpartition(":")
            try:
                found.append(f"{self.resolve(host)}:{port}")
            except OSError:
                unknown.append(host)
        if not found:
            raise Unavailable(f"etcd at {self} does not answer: no address for {', '.join(unknown)}")
        return found

    def read_password(self) -> str | None:
        """Raises CoordinationError if the caller's function does."""
        return self.password() if callable(self.password) else self.password

    def stamp_files(self) -> tuple[object, ...]:
        """Return a value that changes when a certificate's file is replaced."""
        return tuple(map(_stamp, (self.ca_cert, self.cert_cert, self.cert_key)))


def connect(address: Address, target: str, *, is_again: bool = False) -> etcd3.Etcd3Client:
    """A client with a connection of its own to `address.target()`. Blocks: it reads certificates and logs in.

    Raises CoordinationError, Unavailable. If this client `is_again` logging in, a refused login is Unavailable: its
    password has been changed in etcd, and will be in its file soon.
    """
    options = [*_OPTIONS]
    if len(address.endpoints) > 1:
        options.append(_ROUND_ROBIN)
        if address.ca_cert is not None:
            options.append(("grpc.ssl_target_name_override", _host(address.endpoints[0])))
    host, _, port = target.rpartition(":")
    try:
        return etcd3.Etcd3Client(
            host,
            port,
            ca_cert=address.ca_cert,
            cert_key=address.cert_key,
            cert_cert=address.cert_cert,
            timeout=address.deadline_s,
            user=address.user,
            password=address.read_password(),
            grpc_options=options,
        )
    except grpc.RpcError as error:
        if is_again and "authentication failed" in (error.details() or ""):
            raise Unavailable(f"etcd at {address} refuses the login: the password was changed") from error
        if is_certificate_refused(error):
            raise explain_certificate(address, error) from error
        raise explain_error(address, error, has_answered=is_again) from error
    except OSError as error:
        raise CoordinationError(f"etcd's certificate {error.filename} can't be read: {error}") from error


def _stamp(path: str | None) -> object:
    if path is None:
        return None
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def is_certificate_refused(error: grpc.RpcError) -> bool:
    """Whether the server's certificate was refused, maybe because it has expired."""
    return "CERTIFICATE_VERIFY_FAILED" in (error.details() or "")


def explain_certificate(address: Address, error: grpc.RpcError) -> CoordinationError:
    """`explain_error` for a refused certificate. Blocks for at most the deadline per member: it looks at their
    certificates, since gRPC doesn't say what is wrong.
    """
    for endpoint in address.endpoints:
        host, _, port = endpoint.rpartition(":")
        try:
            pem = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=address.deadline_s)
        except OSError:
            continue
        if (date := address.read_expiry(pem)) is not None:
            return Unavailable(f"etcd at {address} does not answer: the certificate of {endpoint} expired on {date}")
    return explain_error(address, error)


def is_unavailable(error: grpc.RpcError) -> bool:
    return bool(error.code() is grpc.StatusCode.UNAVAILABLE)


def disconnect(client: etcd3.Etcd3Client) -> None:
    """Close the connection. Waits for gRPC's threads, for at most 2 s: gRPC itself waits for ever if one has died."""
    closing = threading.Thread(target=client.close, name="etcd closes", daemon=True)
    closing.start()
    closing.join(_CLOSING_S)


def disconnect_later(client: etcd3.Etcd3Client, after_s: float) -> None:
    """Close the connection after this time, in a thread: closing may wait for a thread that has died, and would block
    the event loop. It isn't a `threading.Thread`, because `start` waits for the new thread's first line.
    """

    def close() -> None:
        time.sleep(after_s)
        client.close()

    _thread.start_new_thread(close, ())


def is_token_stale(error: grpc.RpcError) -> bool:
    """Whether the login has expired, or users have changed since: a new login suffices."""
    details = error.details() or ""
    return "invalid auth token" in details or "revision of auth store is old" in details


def explain_error(address: Address, error: grpc.RpcError, *, has_answered: bool = False) -> CoordinationError:
    """The error as one of the port's, in one sentence. `has_answered`: etcd has answered this client before."""
    code, details = error.code(), (error.details() or "no reason given").removeprefix("etcdserver: ")
    if code in _SILENT or "context deadline exceeded" in details:
        return Unavailable(f"etcd at {address} does not answer: {_short(address, code, details, has_answered)}")
    if "lease not found" in details:
        return LeaseGone(f"etcd at {address} no longer knows the lease: it has expired or was revoked")
    if details.startswith("authentication failed") or details == "user name is empty":
        return CoordinationError(f"etcd at {address} refuses the login (etcd_user and etcd_password_file): {details}")
    return (Denied if details == "permission denied" else CoordinationError)(f"etcd at {address} refuses: {details}")


def silent(address: Address) -> Unavailable:
    return Unavailable(f"etcd at {address} does not answer: no connection within {address.deadline_s:g} s")


def explain_exhausted(address: Address, error: RuntimeError) -> Unavailable:
    return Unavailable(f"etcd at {address} can't be asked: {error}")


def explain_closed(address: Address) -> Unavailable:
    return Unavailable(f"etcd at {address} can't be asked: this connection has been closed")


def _short(address: Address, code: grpc.StatusCode, details: str, has_answered: bool) -> str:
    if "Connection refused" in details:
        return "connection refused"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no reply within {address.deadline_s:g} s"
    if "ping timeout" in details:
        return "no reply to a ping"
    if "HTTP/2" in details:
        return "the server there doesn't speak the etcd protocol"
    if "Socket closed" in details:
        # A server that requires TLS has never answered a client without it.
        is_for_tls = address.ca_cert is None and not has_answered
        return "it closed the connection" + (", as a server that requires TLS does (etcd_ca)" if is_for_tls else "")
    return details.rpartition("last error: ")[2]


def _host(endpoint: str) -> str:
    return endpoint.rpartition(":")[0].strip("[]")


def _version(endpoint: str) -> int | None:
    try:
        return ip_address(_host(endpoint)).version
    except ValueError:
        return None
