"""``trimtab pause``, ``resume``, ``mode`` and ``policy``: control events, written by a person who says why."""

import getpass
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from typing import Any, TypeVar
from uuid import uuid4

import click

from state.events import System
from streaming.cli.configured import settings_options
from streaming.cli.forms import format_option, render
from streaming.cli.options import Duration, example
from streaming.operators import edits, overlay
from streaming.operators.acknowledged import wait_until_obeyed
from streaming.operators.control_topic import (
    ControlTopic,
    KnownCluster,
    check_taken,
    check_written,
    known_clusters_of,
)
from streaming.operators.edits import BadChange, Edit
from streaming.operators.overlay import Asker, Planned, Standing
from streaming.operators.overlay_text import change_text, overlay_text, overlay_tree
from streaming.process.exits import Refused, WrongUse
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.catalog import suggest_nearest
from streaming.settings.sections import NAME_PATTERN

Command = TypeVar("Command", bound=Callable[..., Any])

_LOOK_BACK_S = 86_400
"""How far back `--all` looks for clusters on the audit topic: a cluster that reports has a summary every round."""
_LIVE_S = 3600
"""A cluster without a summary for this long may be a misspelt one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The clusters that the options name."""

    settings: Settings
    clusters: tuple[str, ...]
    every: bool
    force: bool = False
    """Whether a named cluster may be unknown to the audit topic, the settings and the control topic."""


def targets(command: Callable[..., None]) -> Callable[..., None]:
    """The options that choose clusters."""
    for option in (
        click.option(
            "--all",
            "every",
            is_flag=True,
            help="Every cluster with a round in the last day, in the settings, or changed by a control event.",
        ),
        click.option("--cluster", "clusters", multiple=True, metavar="NAME", help="May be repeated."),
        settings_options,
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of every command that writes a control event."""

    target: Target
    why: str
    who: str | None
    wait: bool

    @property
    def asker(self) -> Asker:
        """Who asks, and why. Raises ``click.BadParameter`` without a reason."""
        if not self.why.strip():
            raise click.BadParameter("give a reason: it is shown in every round summary", param_hint="--why")
        return Asker(who=self.who or getpass.getuser(), why=self.why.strip())


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a command that writes a control event; the command gets them as a ``Request``."""

    @wraps(command)
    def run(
        settings: Settings,
        clusters: tuple[str, ...],
        why: str,
        who: str | None,
        *,
        every: bool,
        force: bool,
        wait: bool,
        **others: Any,
    ) -> None:
        target = Target(settings=settings, clusters=clusters, every=every, force=force)
        command(Request(target=target, why=why, who=who, wait=wait), **others)

    decorated: Callable[..., None] = run
    for option in (
        click.option("--who", metavar="NAME", help="Your name; the login user if not given."),
        click.option(
            "--why", required=True, metavar="TEXT", help="The reason; shown in every round summary."
        ),
        click.option(
            "--force",
            is_flag=True,
            help="Also for a cluster that is not in the settings and had no round in the last hour.",
        ),
        click.option(
            "--wait", is_flag=True, help="Wait until a round obeys it; exit code 7 if none does in time."
        ),
        targets,
    ):
        decorated = option(decorated)
    return decorated


@click.command("pause", epilog=example('trimtab pause --cluster east-1 --for 2h --why "the sale"'))
@click.option(
    "--for",
    "duration",
    type=Duration(),
    help="The pause ends by itself after this time, such as 90s, 30m, 2h or 1h30m; else `resume` ends it.",
)
@with_request_options
def pause_command(request: Request, duration: timedelta | None) -> None:
    """Hold every action; the policies go on counting. Mode and settings stay as they are."""
    change(request, edits.pause_edit(None if duration is None else datetime.now(UTC) + duration))


@click.command("resume", epilog=example('trimtab resume --cluster east-1 --why "it is over"'))
@with_request_options
def resume_command(request: Request) -> None:
    """End a pause, and say that what made actions fail is mended. Mode and settings stay as they are."""
    change(request, edits.resume_edit(datetime.now(UTC)))


@click.command("forget", epilog=example('trimtab forget --cluster east-1 --why "dismantled"'))
@with_request_options
def forget_command(request: Request) -> None:
    """Forget what is remembered of a cluster: averages, hits, cooldowns, budgets, failures. Its pause, mode and settings stay.

    For a cluster that is gone, this frees its memory. Take a Kafka throttle off before: afterwards it is not known to be ours.
    """
    if request.target.every:
        raise click.UsageError("name the clusters to forget: --cluster NAME (once or more)")
    change(request, edits.forget_edit())


@click.command("mode", epilog=example('trimtab mode act --cluster east-1 --why "watched for a day"'))
@click.argument("mode", type=click.Choice(["act", "dry-run", "configured"]))
@click.option(
    "--approval",
    type=click.Choice(["required", "none", "configured"]),
    help="Whether unloads and splits wait for `trimtab approve` when it acts; unchanged if not given.",
)
@with_request_options
def mode_command(request: Request, mode: str, approval: str | None) -> None:
    """Let a cluster act, or only show what it would do; `configured` takes controller.mode (and controller.approval)."""
    change(request, edits.mode_edit(mode, approval))


@click.group("policy")
def policy_command() -> None:
    """Change decision settings while the controller runs, or see what is in force."""


@policy_command.command(
    "set",
    epilog=example('trimtab policy set --cluster east-1 --why "calmer" pulsar.avg_shedder.low_hit_count=12'),
)
@click.argument("assignments", nargs=-1, required=True, metavar="KEY=VALUE...")
@with_request_options
def set_command(request: Request, assignments: tuple[str, ...]) -> None:
    """Put settings over those of the file, with keys as in trimtab.toml: pulsar.avg_shedder.low_threshold_points=10."""
    change(request, check(lambda: edits.settings_edit(assignments)))


@policy_command.command(
    "unset",
    epilog=example(
        'trimtab policy unset --cluster east-1 --why "as before" pulsar.avg_shedder.low_hit_count'
    ),
)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@with_request_options
def unset_command(request: Request, keys: tuple[str, ...]) -> None:
    """Take settings, or whole sections, out of the overlay: those of the file hold again."""
    change(request, check(lambda: edits.unset_edit(keys)))


@policy_command.command("show", epilog=example("trimtab policy show --cluster east-1"))
@targets
@format_option("JSON and YAML are a list with one object per cluster.")
def show_command(settings: Settings, clusters: tuple[str, ...], form: str, *, every: bool) -> None:
    """Show the newest control event of a cluster, who wrote it and why."""
    target = Target(settings=settings, clusters=clusters, every=every)
    known = find_known_clusters(target, settings)
    stands = overlay.find_standings(
        ControlTopic(settings).read(), ClusterSettingsSource(settings), _known_systems(known or {})
    )
    names = clusters_of(target, settings, stands, known)
    _show({name: stands.get(name, Standing()) for name in names}, form)


def _show(found: Mapping[str, Standing], form: str) -> None:
    if form != "table":
        click.echo(render([overlay_tree(*each) for each in found.items()], form), nl=False)
        return
    for cluster, each in found.items():
        click.echo(overlay_text(cluster, each), nl=False)


@click.group("control")
def control_command() -> None:
    """List what operators have set, and take it back."""


@control_command.command("list", epilog=example("trimtab control list"))
@settings_options
@format_option("JSON and YAML are a list with one object per cluster.")
def list_command(settings: Settings, form: str) -> None:
    """Show every cluster whose newest control event makes it differ from the settings file."""
    stands = overlay.find_standings(ControlTopic(settings).read(), ClusterSettingsSource(settings))
    found = {name: each for name, each in sorted(stands.items()) if each.refused or not each.is_as_configured}
    if not found and form == "table":
        click.echo("every cluster is as configured")
    _show(found, form)


@control_command.command(
    "delete", epilog=example('trimtab control delete --cluster est-1 --why "a misspelt name"')
)
@with_request_options
def delete_command(request: Request) -> None:
    """Take back pause, mode and settings at once: the cluster is as the settings file says, and no longer listed."""
    if request.target.every:
        raise click.UsageError("name the clusters to set back: --cluster NAME (once or more)")
    change(request, edits.configured_edit())


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlChange:
    """The event that was written for a cluster, and what its newest summary says; None if that is not known."""

    event: Planned
    known: KnownCluster | None


def change(request: Request, edit: Edit) -> list[ControlChange]:
    """Read what is in force, write each cluster's change, read it back, print what holds from when, and wait if ``request.wait``."""
    target, asker = request.target, request.asker
    settings = target.settings
    topic, known = ControlTopic(settings), find_known_clusters(target, settings)
    before = topic.read()
    source, systems = ClusterSettingsSource(settings), _known_systems(known or {})
    stands = overlay.find_standings(before, source, systems)
    now_ms = round(time.time() * 1000)
    plan = partial(
        overlay.plan, edit=edit, asker=asker, settings=source, now_ms=now_ms, nonce=uuid4().hex[:8]
    )
    events = [
        check(partial(plan, cluster, stands=stands.get(cluster, Standing()), system=systems.get(cluster)))
        for cluster in clusters_of(target, settings, stands, known)
    ]
    topic.write(events)
    after = topic.read()
    check_written(events, before, after)
    check_taken(events, overlay.find_standings(after, source, systems))
    for event in events:
        refused = stands.get(event.cluster, Standing()).refused
        if refused is not None:
            click.echo(
                f"{event.cluster}: this changes the event before the newest one, because the controller refused the newest: {refused}",
                err=True,
            )
        click.echo(change_text(event), nl=False)
    if request.wait:
        for obeyed in wait_until_obeyed(settings, events):
            data = obeyed.data
            click.echo(f"{obeyed.cluster}: obeyed since round {data.round}, which ended at {data.end}")
    return [ControlChange(event=event, known=(known or {}).get(event.cluster)) for event in events]


Result = TypeVar("Result")


def check(make: Callable[[], Result]) -> Result:
    try:
        return make()
    except BadChange as error:
        raise WrongUse(str(error)) from error


def clusters_of(
    target: Target,
    settings: Settings,
    stands: Mapping[str, Standing],
    known: Mapping[str, KnownCluster | None] | None,
) -> list[str]:
    """The clusters to change, by name; raises ``WrongUse`` for a named one that is not known, unless forced."""
    named = {*settings.clusters, *(name for name, each in stands.items() if not each.is_as_configured)}
    if target.every:
        found = sorted({*named, *(known or {})})
        if not found:
            raise WrongUse(
                f"no cluster is named in the settings or found on {settings.topics.audit}: use --cluster"
            )
        return found
    if known is not None and not target.force:
        _require_known(target.clusters, {*named, *known})
    return sorted(set(target.clusters))


def _check_names(target: Target) -> None:
    if target.every == bool(target.clusters):
        raise click.UsageError("give either --cluster NAME (once or more) or --all")
    for name in target.clusters:
        if not NAME_PATTERN.fullmatch(name):
            raise click.BadParameter(f"{name!r}: a cluster's name is 1 to 100 of A-Z a-z 0-9 . _ -")


def find_known_clusters(target: Target, settings: Settings) -> dict[str, KnownCluster | None] | None:
    """Clusters on the audit topic, and what kind each is; None where it cannot be read.

    For named clusters it only shows whether they are misspelt and how long their rounds are, so a failed read holds up no pause.
    """
    _check_names(target)
    look_back_s = _LOOK_BACK_S if target.every else _LIVE_S
    try:
        return known_clusters_of(settings, since_ms=round((time.time() - look_back_s) * 1000))
    except Refused as error:
        if target.every:
            raise
        click.echo(
            f"the audit topic cannot be read, so cluster names are not checked, and the first round is computed as for Pulsar: {error}",
            err=True,
        )
        return None


def _known_systems(known: Mapping[str, KnownCluster | None]) -> dict[str, System]:
    """The clusters whose system is known."""
    return {cluster: each.system for cluster, each in known.items() if each is not None}


def _require_known(clusters: Iterable[str], known: set[str]) -> None:
    strangers = sorted(set(clusters) - known)
    if strangers:
        hints = (
            "; ".join(suggest_nearest(name, known) for name in strangers) if known else "no cluster is known"
        )
        raise WrongUse(
            f"{', '.join(strangers)}: unknown, with no round in the last hour, no settings and no control event "
            f"({hints}). If the name is right, add --force"
        )
