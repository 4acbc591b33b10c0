"""Command `evenlane config`: shows the settings in effect and their sources."""

from evenlane.engine.base.config.settings import CLUSTER_SETTINGS
from evenlane.engine.cli.options import CommonOptions, Json, common
from evenlane.engine.cli.output import print_json, print_table


@common
def config(given: CommonOptions, *, as_json: Json = False) -> None:
    """Show the settings in effect, and where each value comes from.

    Flags override EVENLANE_* variables. Variables override the file (--config, else EVENLANE_CONFIG, else
    ./evenlane.toml), and the file overrides the defaults. Contacts nothing. Values are written as they can be set;
    --json has durations in seconds and sizes in bytes.

    Example:
      evenlane config --config evenlane.toml
      evenlane config --json
    """
    loaded = given.load(subscription=None)
    if as_json:
        print_json({"settings": loaded.settings.shown(), "origins": loaded.origins})
        return
    values = loaded.settings.written()
    rows = [(key, _cell(key, value), loaded.origins[key]) for key, value in values.items()]
    print_table(("SETTING", "VALUE", "FROM"), rows)


def _cell(key: str, value: str | None) -> str:
    if value is None:
        return {"node": "HOST-PID"}.get(key, "set by the cluster" if key in CLUSTER_SETTINGS else "-")
    return value
