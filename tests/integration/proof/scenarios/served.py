"""Runs a scenario until it serves messages, on a machine that may be busy."""

_MOST_RUNS = 4


async def run_until_served(run, scale, *figures):
    """The report of `run(scale)` in which none of these figures, each an arm and a name, is 0. A busy machine may serve
    nothing in the few seconds of a small scale, so each further run takes twice as long.
    """
    for longer in range(_MOST_RUNS):
        report = await run(scale * 2**longer)
        if all(report.arms[arm][name] > 0 for arm, name in figures):
            return report
    raise AssertionError(f"nothing was served in {_MOST_RUNS} runs: {report.arms}")
