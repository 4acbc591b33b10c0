"""Takes the terminal for `evenlane top`, and restores it afterwards."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from evenlane.engine.cli.top import view_state as chosen
from evenlane.engine.cli.top.app import TopApp

if TYPE_CHECKING:
    from evenlane.engine.cli.top.source import OverviewSource
    from evenlane.engine.cli.top.view_state import ViewState


async def run(source: OverviewSource, choice: ViewState, interval_s: float) -> None:
    """Run the app until quit or signalled. Raises EvenlaneError for the first overview, and the app's defect."""
    document = await source.overview()
    chosen.check(choice, document)
    app = TopApp(source, choice, interval_s, document)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, app.exit)
    try:
        await app.run_async()
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
    if app.defect is not None:
        raise app.defect
