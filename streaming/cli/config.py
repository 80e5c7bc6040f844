"""``trimtab config``: the settings in force and where each was written, or the whole reference."""

import json
import os
from pathlib import Path

import click

from streaming.cli.options import config_option, example
from streaming.cli.output import format_option, to_yaml
from streaming.process.exits import WrongUse, raised_as
from streaming.settings.catalog import SettingsError, suggest_nearest
from streaming.settings.load import load
from streaming.settings.reference import differing, in_force, render_json, render_reference, render_toml
from streaming.settings.sections import NAME_PATTERN


@click.command("config", epilog=example("trimtab config --cluster east-1"))
@config_option
@click.option("--cluster", metavar="NAME", help="What is in force for this cluster.")
@format_option(default="toml", forms=("toml", "json", "yaml"))
@click.option("--reference", is_flag=True, help="Print the reference of all settings, as Markdown.")
@click.option("--changed", is_flag=True, help="Only what differs from the defaults.")
def config_command(
    config: Path | None, cluster: str | None, form: str, *, reference: bool, changed: bool
) -> None:
    """Show the settings in force, each with its source: default, file, environment or flag.

    What is printed as TOML can be used as a settings file.
    """
    if reference and (cluster is not None or changed or form != "toml"):
        raise WrongUse("--reference is one text for all: leave --cluster, --changed and -o out")
    if reference:
        click.echo(render_reference(), nl=False)
        return
    if cluster is not None and not NAME_PATTERN.fullmatch(cluster):
        raise click.BadParameter("a cluster's name is 1 to 100 of A-Z a-z 0-9 . _ -", param_hint="--cluster")
    with raised_as(WrongUse, SettingsError):
        loaded = load(file=config, flags={}, environ=os.environ)
    named = {*loaded.settings.clusters, *loaded.settings.targets}
    if cluster is not None and cluster not in named:
        hint = f" ({suggest_nearest(cluster, named)})" if named else ""
        click.echo(
            f"{cluster} is not named in the settings{hint}: what holds for every cluster is shown", err=True
        )
    found = in_force(loaded, cluster=cluster)
    if changed:
        differs = list(differing(found))
        if not differs:
            click.echo("nothing differs from the defaults", err=True)
        found = iter(differs)
    if form == "yaml":
        click.echo(to_yaml(json.loads(render_json(found))), nl=False)
    else:
        click.echo(render_json(found) if form == "json" else render_toml(found), nl=False)
