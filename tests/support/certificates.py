"""Certificates for tests, made by openssl."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def make_certificate(
    folder: Path, name: str = "cert", *, days: int = 2, until: str | None = None, by: tuple[Path, Path] | None = None
) -> tuple[Path, Path]:
    """(certificate, key), for 127.0.0.1 and localhost. `until` (YYYYMMDDHHMMSSZ) may be in the past; such a certificate
    may be signed `by` another one.
    """
    cert, key, request = folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}.csr"
    alternatives = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    if until is None:
        _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", days, "-subj", "/CN=localhost",
                 "-addext", alternatives, "-keyout", key, "-out", cert)  # fmt: skip
        return cert, key
    database = folder / f"{name}.db"
    database.write_text("")
    config = folder / f"{name}.cnf"
    config.write_text(
        f"[ca]\ndefault_ca=own\n[own]\ndatabase={database}\nnew_certs_dir={folder}\nrand_serial=yes\ndefault_md=sha256\n"
        "policy=any\nunique_subject=no\ncopy_extensions=copy\n[any]\ncommonName=supplied\n"
    )
    _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext", alternatives,
             "-keyout", key, "-out", request)  # fmt: skip
    signer = ("-selfsign", "-keyfile", key) if by is None else ("-cert", by[0], "-keyfile", by[1])
    _openssl("ca", "-batch", "-config", config, *signer, "-in", request, "-out", cert, "-notext",
             "-startdate", "20200101000000Z", "-enddate", until)  # fmt: skip
    return cert, key


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
