"""Wrong clocks for processes: libfaketime, which `make tools` gets."""

from pathlib import Path

from tests.support import ROOT

_LIBRARY = "usr/lib/*/faketime/libfaketime.so.1"


def ahead_of_time(seconds: int) -> dict[str, str]:
    """Return variables of the environment with which a program's time of day is ahead; other clocks stay right. Fails
    if the library is missing.
    """
    found = [each for folder in (ROOT / ".tools", Path("/")) for each in folder.glob(_LIBRARY)]
    assert found, "libfaketime is missing: `make tools` gets it"
    quick = {"FAKETIME_DISABLE_SHM": "1", "NO_FAKE_STAT": "1"}
    return {"LD_PRELOAD": str(found[0]), "FAKETIME": f"+{seconds}s", "DONT_FAKE_MONOTONIC": "1", **quick}
