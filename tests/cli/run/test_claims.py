"""Claims of a process in memory that it shares with its supervisor."""

import os
import signal
import subprocess
import sys

import pytest

from evenlane.engine.cli.run.claims import Claimant, ProcessClaims, create_shared_memory, read_claims
from tests.support.cli.fakes import ROOT


@pytest.fixture
def memory():
    descriptor = create_shared_memory()
    yield descriptor
    os.close(descriptor)


def test_new_memory_has_no_claims(memory):
    assert ProcessClaims() == read_claims(memory)


def test_last_write_replaces_earlier_claims(memory):
    """Z1: the present lease, and those of earlier sessions that couldn't be revoked."""
    node = Claimant(memory)
    node.report_leases("online", [1])
    node.report_leases("online", [1, 1 << 62])
    assert ProcessClaims("online", (1, 1 << 62)) == read_claims(memory)
    node.report_leases("online", [])
    assert ProcessClaims("online") == read_claims(memory)


def test_leases_and_loans_are_independent(memory):
    """Q"""
    node = Claimant(memory)
    node.report_leases("online", [1])
    node.report_lent({"acme": 5})
    node.report_leases("online", [2])
    assert ProcessClaims("online", (2,), lent={"acme": 5}) == read_claims(memory)
    node.report_lent({})
    assert ProcessClaims("online", (2,)) == read_claims(memory)


def test_claims_may_have_any_size(memory):
    node = Claimant(memory)
    for count in (10, 20_000, 3, 30_000):
        lent = {f"project-{number}": number for number in range(count)}
        node.report_lent(lent)
        assert lent == read_claims(memory).lent


def test_killed_process_leaves_its_last_complete_claims(memory):
    """E7, Z1: kill -9 at any moment."""
    code = (
        "import itertools, sys\n"
        "from evenlane.engine.cli.run.claims import Claimant\n"
        "node = Claimant(int(sys.argv[1]))\n"
        "for number in itertools.count(1):\n"
        "    node.report_lent({f'p{n}': number for n in range(number % 1_000)})\n"
        "    node.report_leases('online', [number] * 3)\n"
        "    if number == 2_000: print(flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(memory)], stdout=subprocess.PIPE, pass_fds=(memory,), cwd=ROOT
    )
    with process:
        process.stdout.readline()
        process.kill()
    assert -signal.SIGKILL == process.returncode
    claims = read_claims(memory)
    number = claims.leases[0]
    assert number >= 2_000
    assert claims in (
        ProcessClaims("online", (number,) * 3, lent={f"p{n}": number + later for n in range((number + later) % 1_000)})
        for later in (0, 1)
    )
