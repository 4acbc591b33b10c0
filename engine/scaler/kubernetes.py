"""The replicas of a Deployment, through the scale subresource of the Kubernetes API.

Two requests are all that is made: GET and PATCH of `deployments/<name>/scale`. The patch names the resource version
that was read, so that the API refuses it if anybody has changed the scale meanwhile.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from evenlane.engine.base import tls
from evenlane.engine.base.http_body import read_body
from evenlane.engine.control.scaling.target import Scale, ScaleError
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import ConfigError
from evenlane.engine.scaler.api_certificate import describe_expiry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.base.config.scaling import ScalingSettings

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts token, CA and namespace of a pod's service account."""

_TIMEOUT_S = 10.0
_MOST_BYTES = 1 << 20
_EXPIRED = 10  # OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED
_TOKEN = re.compile(r"[!-~]+")
_PATCH = "application/merge-patch+json"


class _Metadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - Kubernetes' name


class _Spec(msgspec.Struct):
    replicas: int = 0  # the API leaves a 0 out


class _Answer(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class DeploymentScale:
    """The replicas of one Deployment (`ReplicaTarget`). The token is read for each request, as Kubernetes renews it."""

    def __init__(self, api: str, namespace: str, name: str, token: Path, ca: Path) -> None:
        self._url = f"{api}/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"
        self._api, self._token, self._ca = api, token, ca
        self._what = f"Deployment {name!r} in namespace {namespace!r}"
        self._name = name

    async def read(self) -> Scale:
        answer = await self._request("get")
        return Scale(answer.spec.replicas, answer.metadata.resourceVersion)

    async def change(self, replicas: int, version: str) -> None:
        await self._request("patch", {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}})

    async def _request(self, verb: str, body: Mapping[str, Any] | None = None) -> _Answer:
        try:
            headers = {"Authorization": f"Bearer {self._read_token()}", "Accept": "application/json"}
            context = tls.context("scaling", str(self._ca), None, None)
        except ConfigError as error:
            raise ScaleError(str(error)) from error
        data = None if body is None else msgspec.json.encode(body)
        headers |= {} if data is None else {"Content-Type": _PATCH}
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context or True), timeout=timeout) as session,
                session.request(verb, self._url, data=data, headers=headers, allow_redirects=False) as response,
            ):
                text = await read_body(response, _MOST_BYTES)
                status = response.status
        except aiohttp.ClientConnectorCertificateError as error:
            raise ScaleError(await self._explain_certificate(error)) from error
        except TimeoutError as error:
            raise ScaleError(f"the Kubernetes API at {self._api} has not answered for {_TIMEOUT_S:g}s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ScaleError(f"the Kubernetes API at {self._api} can't be reached: {error}") from error
        if status != 200:
            raise ScaleError(self._explain(status, verb))
        try:
            return msgspec.json.decode(text, type=_Answer)
        except UNREADABLE as error:
            raise ScaleError(f"the answer of {self._api} is no scale: {error}") from error

    def _read_token(self) -> str:
        try:
            token = self._token.read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            raise ConfigError(f"the token for the Kubernetes API can't be read: {error}") from error
        if not _TOKEN.fullmatch(token):
            raise ConfigError(
                f"{self._token} has no valid token for the Kubernetes API: it must be one line of ASCII, without spaces"
            )
        return token

    async def _explain_certificate(self, error: aiohttp.ClientConnectorCertificateError) -> str:
        if getattr(error.certificate_error, "verify_code", None) == _EXPIRED:
            return await describe_expiry(self._api)
        return f"the Kubernetes API at {self._api} can't be reached: {error}"

    def _explain(self, status: int, verb: str) -> str:
        needs = f"it needs a Role with get and patch of deployments/scale, for the name {self._name!r}"
        sentences = {
            401: f"the Kubernetes API doesn't accept the token of {self._token} (401)",
            403: f"the Kubernetes API doesn't let the nodes' service account {verb} the scale of {self._what} (403):"
            f" {needs}",
            404: f"there is no {self._what} (404): scaling_deployment and scaling_namespace name the one of the nodes",
            409: f"somebody else has changed the scale of {self._what} in the same moment (409): the next look decides"
            " again",
        }
        return sentences.get(status, f"the Kubernetes API at {self._api} answers {status} to a {verb} of {self._what}")


def find_deployment(settings: ScalingSettings, environ: Mapping[str, str], account: Path = ACCOUNT) -> DeploymentScale:
    """Return the Deployment that the settings name. What they leave out is that of the pod. Raises ConfigError."""
    assert settings.scaling_deployment is not None  # the settings are checked
    api = settings.scaling_api or _find_api(environ)
    namespace = settings.scaling_namespace or _read_namespace(account)
    if api is None or namespace is None:
        missing = "scaling_api" if api is None else "scaling_namespace"
        raise ConfigError(f"scaling: leader needs the Kubernetes API: run the node in a pod, or set {missing}")
    token, ca = settings.scaling_token_file or account / "token", settings.scaling_ca or account / "ca.crt"
    for key, path in (("scaling_token_file", token), ("scaling_ca", ca)):
        if not path.is_file():
            raise ConfigError(f"scaling: leader needs the Kubernetes API: {path} is not a file, so set {key}")
    return DeploymentScale(api, namespace, settings.scaling_deployment, token, ca)


def _find_api(environ: Mapping[str, str]) -> str | None:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return None
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _read_namespace(account: Path) -> str | None:
    try:
        return (account / "namespace").read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
