"""When a certificate expires (S2), compared with what openssl says."""

import shutil
import ssl
import subprocess
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.certificates import expiry_of_der, expiry_of_pem
from tests.support.certificates import make_certificate

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")


@needs_openssl
@pytest.mark.parametrize("days", [1, 40, 9_000, 20_000])
def test_expiry_is_what_openssl_says(tmp_path, days):
    """S2: years before and after 2050 are written in different forms."""
    cert, _ = make_certificate(tmp_path, days=days)
    shown = subprocess.run(
        ["openssl", "x509", "-enddate", "-noout", "-in", cert], check=True, capture_output=True, text=True
    ).stdout
    expected = datetime.fromtimestamp(ssl.cert_time_to_seconds(shown.strip().removeprefix("notAfter=")), UTC)
    assert expected == expiry_of_pem(cert.read_text())


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----"])
def test_unreadable_file_has_no_expiry(text):
    assert expiry_of_pem(text) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_harmless(data):
    assert expiry_of_der(data) is None or data
