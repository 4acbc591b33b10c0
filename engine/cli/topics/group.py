"""Group of commands `evenlane topics`, with `evenlane topics template`."""

from evenlane.engine.cli.topics import templates
from evenlane.engine.cli.topics.command import app

app.add_typer(templates.app, name="template")
