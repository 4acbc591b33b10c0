"""The plugin that pytest loads in every run, and the time that a test takes."""

from __future__ import annotations

import subprocess
import sys
import time

from evenlane.testing import TestApp

_HEAVY = """
import sys
import evenlane.engine.testing.pytest_plugin
print(*sorted(name for name in sys.modules if name.startswith("evenlane.") or name in {"asyncio", "msgspec", "grpc"}))
"""


def test_loading_the_plugin_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", _HEAVY], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    light = {"asyncio"}  # of pytest itself
    assert loaded - light == {
        "evenlane.engine",
        "evenlane.engine._version",
        "evenlane.engine.testing",
        "evenlane.engine.testing.pytest_plugin",
    }


async def test_a_test_takes_less_than_50_ms():
    async def handle(_message):
        pass

    async def run():
        async with TestApp(handle, topics={"acme": {"qps": 100}}) as t:
            await t.put("acme", b"x")
            await t.run_until_idle()
            assert 1 == len(t.handled)

    await run()  # the first one imports
    began = time.process_time()
    await run()
    assert time.process_time() - began < 0.05
