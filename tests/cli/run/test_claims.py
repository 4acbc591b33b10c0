"""What a process claims in memory that it shares with its supervisor."""

import os
import signal
import subprocess
import sys

import pytest

from evenlane.engine.cli.run.claims import Claimant, Claims, claimed, shared
from tests.support.cli.fakes import ROOT


@pytest.fixture
def memory():
    descriptor = shared()
    yield descriptor
    os.close(descriptor)


def test_nothing_is_claimed_at_first(memory):
    assert Claims() == claimed(memory)


def test_the_newest_counts(memory):
    """Z1: the leases of former terms that couldn't be given back, and the present one's."""
    node = Claimant(memory)
    node.holds([1])
    node.holds([1, 1 << 62])
    assert Claims(leases=(1, 1 << 62)) == claimed(memory)
    node.holds([])
    assert Claims() == claimed(memory)


def test_leases_and_loans_are_kept_apart(memory):
    """Q"""
    node = Claimant(memory)
    node.holds([1])
    node.lends({"acme": 5})
    node.holds([2])
    assert Claims(leases=(2,), lent={"acme": 5}) == claimed(memory)
    node.lends({})
    assert Claims(leases=(2,)) == claimed(memory)


def test_claims_of_any_size(memory):
    node = Claimant(memory)
    for count in (10, 20_000, 3, 30_000):
        lent = {f"project-{number}": number for number in range(count)}
        node.lends(lent)
        assert lent == claimed(memory).lent


def test_a_process_that_is_killed_leaves_what_it_claimed_last(memory):
    """E7, Z1: kill -9 at any moment; one of its writes is the last, and whole."""
    code = (
        "import itertools, sys\n"
        "from evenlane.engine.cli.run.claims import Claimant\n"
        "node = Claimant(int(sys.argv[1]))\n"
        "for number in itertools.count(1):\n"
        "    node.lends({f'p{n}': number for n in range(number % 1_000)})\n"
        "    node.holds([number] * 3)\n"
        "    if number == 2_000: print(flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(memory)], stdout=subprocess.PIPE, pass_fds=(memory,), cwd=ROOT
    )
    with process:
        process.stdout.readline()
        process.kill()
    assert -signal.SIGKILL == process.returncode
    claims = claimed(memory)
    number = claims.leases[0]
    assert number >= 2_000
    assert claims in (
        Claims(leases=(number,) * 3, lent={f"p{n}": number + later for n in range((number + later) % 1_000)})
        for later in (0, 1)
    )
