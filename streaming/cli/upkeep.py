"""``trimtab maintenance`` and ``drain``: what operators take out of balancing, as part of a cluster's control."""

from datetime import UTC, datetime

import click

from streaming.cli.configured import settings_options
from streaming.cli.control import ControlChange, Request, change, with_request_options
from streaming.cli.forms import format_option, render
from streaming.cli.options import Moment, example
from streaming.operators import overlay, upkeep
from streaming.operators.control_topic import ControlTopic
from streaming.operators.drained import follow_drains
from streaming.settings import ClusterSettingsSource, Settings

_brokers_option = click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="ID",
    help="The broker's id as in its reports; may be repeated.",
)
_namespaces_option = click.option(
    "--namespace", "namespaces", multiple=True, metavar="TENANT/NAME", help="May be repeated."
)


@click.group("maintenance")
def maintenance_command() -> None:
    """Leave brokers and namespaces alone: no action touches them, and a broker that is away does not count as missing."""


@maintenance_command.command(
    "start",
    epilog=example(
        "trimtab maintenance start --cluster east-1 --broker b3:8080 --until 2026-11-25T06:00:00Z --why disk"
    ),
)
@_brokers_option
@_namespaces_option
@click.option("--until", type=Moment(), help="When it ends by itself; else `maintenance end` ends it.")
@with_request_options
def start_command(
    request: Request, brokers: tuple[str, ...], namespaces: tuple[str, ...], until: datetime | None
) -> None:
    """Make brokers neither source nor destination, and leave the bundles of namespaces where they are."""
    _require_something(brokers, namespaces)
    edit = upkeep.begin_maintenance(
        brokers, namespaces, asker=request.asker, at=datetime.now(UTC), until=until
    )
    for changed in change(request, edit):
        _warn_of_strangers(changed, brokers)


@maintenance_command.command(
    "end", epilog=example('trimtab maintenance end --cluster east-1 --broker b3:8080 --why "new disk is in"')
)
@_brokers_option
@_namespaces_option
@with_request_options
def end_command(request: Request, brokers: tuple[str, ...], namespaces: tuple[str, ...]) -> None:
    """Let brokers and namespaces take part again; a drained broker, too."""
    _require_something(brokers, namespaces)
    change(request, upkeep.end_maintenance(brokers, namespaces))


@maintenance_command.command("list", epilog=example("trimtab maintenance list --cluster east-1"))
@settings_options
@click.option(
    "--cluster", "clusters", multiple=True, metavar="NAME", help="May be repeated; all if not given."
)
@format_option("JSON and YAML are a list with one object for each.")
def list_command(settings: Settings, clusters: tuple[str, ...], form: str) -> None:
    """Show what is under maintenance, and what is drained; `trimtab status` shows how far a drain is."""
    stands = overlay.find_standings(ControlTopic(settings).read(), ClusterSettingsSource(settings))
    found = {
        name: each
        for name, each in sorted(stands.items())
        if (not clusters or name in clusters) and each.has_upkeep
    }
    if form != "table":
        rows = [row for name, each in found.items() for row in upkeep.upkeep_tree(name, each)]
        click.echo(render(rows, form), nl=False)
        return
    if not found:
        click.echo("nothing is under maintenance or drained")
    for name, each in found.items():
        click.echo(
            "".join(f"{line}\n" for line in [f"{name}:", *upkeep.standing_lines(each.overlay)]), nl=False
        )


@click.command(
    "drain", epilog=example('trimtab drain --cluster east-1 --broker b3:8080 --why "new disk" --wait')
)
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    required=True,
    metavar="ID",
    help="The broker's id as in its reports; may be repeated.",
)
@with_request_options
def drain_command(request: Request, brokers: tuple[str, ...]) -> None:
    """Move every bundle off brokers, within a budget of its own, and keep them empty until `trimtab maintenance end`.

    With --wait it goes on to show how far the drain is, round by round, until the brokers are empty.
    """
    edit = upkeep.begin_drain(brokers, asker=request.asker, at=datetime.now(UTC))
    changes = change(request, edit)
    moving = []
    for changed in changes:
        _warn_of_strangers(changed, brokers)
        if _mode(changed, request.target.settings) == "dry-run":
            click.echo(
                f"{changed.event.cluster}: it is in dry-run, so nothing will move; the unloads are only shown "
                "(`trimtab mode act` lets it act)"
            )
        else:
            moving.append(changed.event)
    if request.wait and moving:
        follow_drains(request.target.settings, moving, brokers, tell=click.echo)


def _mode(changed: ControlChange, settings: Settings) -> str:
    observed = None if changed.known is None else changed.known.mode
    return changed.event.after.mode or observed or settings.controller.mode


def _require_something(brokers: tuple[str, ...], namespaces: tuple[str, ...]) -> None:
    if not brokers and not namespaces:
        raise click.UsageError("give --broker ID or --namespace TENANT/NAME (once or more)")


def _warn_of_strangers(changed: ControlChange, brokers: tuple[str, ...]) -> None:
    cluster = changed.known
    for broker in () if cluster is None else brokers:
        if cluster is not None and cluster.has_not(broker):
            known = ", ".join(cluster.brokers_reporting) or "none"
            click.echo(
                f"{changed.event.cluster}: {broker} did not report in the newest round (those that did: {known}); the event "
                "is written all the same",
                err=True,
            )
