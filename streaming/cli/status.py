"""``trimtab status``: what is in force for each cluster, and why nothing happens."""

import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext

import click
import msgspec

from state.events import System
from streaming.cli.configured import settings_options
from streaming.cli.forms import format_option, render
from streaming.cli.options import example
from streaming.cli.topic_options import records_of
from streaming.operators import overlay
from streaming.operators.action_events import epoch_of
from streaming.operators.beats import Running, Standby, newest_beats, newest_standbys
from streaming.operators.control_topic import ControlTopic
from streaming.operators.overlay import Standing
from streaming.operators.round_events import LOOK_BACK_S, Newest, Round
from streaming.operators.status import ClusterStatus, status_of, status_text
from streaming.process.exits import NotFound, Refused
from streaming.process.stopping import watched
from streaming.settings import ClusterSettingsSource, Settings
from streaming.transport.topics import BEATS_RETENTION_MS

_WATCH_S = 5.0


@click.command("status", epilog=example("trimtab status --cluster east-1 --watch"))
@settings_options
@click.option(
    "--cluster", "clusters", multiple=True, metavar="NAME", help="May be repeated; all if not given."
)
@click.option("--watch", is_flag=True, help="Show it again every few seconds; Ctrl-C or SIGTERM ends it.")
@format_option("JSON and YAML are a list with one object per cluster.")
def status_command(settings: Settings, clusters: tuple[str, ...], form: str, *, watch: bool) -> None:
    """Show what is in force for each cluster as its controller applied it, and why nothing happens."""
    newest = Newest()
    with watched() if watch else nullcontext():
        while True:
            text = _render_statuses(list(_statuses(settings, clusters, newest)), form)
            if watch:
                click.clear()
            click.echo(text, nl=False)
            if not watch:
                return
            time.sleep(_WATCH_S)


def _render_statuses(statuses: list[ClusterStatus], form: str) -> str:
    if form != "table":
        return render(msgspec.to_builtins(statuses), form)
    return "\n".join(map(status_text, statuses))


def _statuses(settings: Settings, clusters: tuple[str, ...], newest: Newest) -> Iterator[ClusterStatus]:
    """``newest`` has the rounds that the previous look found."""
    now_s = time.time()
    beats, standbys = _newest_beats(settings, now_s=now_s)
    rounds = _newest_rounds(settings, set(clusters), newest, beats, now_s=now_s)
    systems: dict[str, System] = {event.cluster: event.data.system for event, _ in rounds}
    stands = _read_standings(settings, systems)
    for event, epoch in rounds:
        yield status_of(
            event,
            epoch=epoch,
            waiting=_describe_waiting(event, stands.get(event.cluster, Standing())),
            beats=beats,
            standbys=standbys,
            now_ms=round(now_s * 1000),
        )


def _newest_beats(
    settings: Settings, *, now_s: float
) -> tuple[dict[str, Running] | None, dict[str, list[Standby]]]:
    """Leaders and standbys by the controller's name. If the beats cannot be read, the leaders are None, and a message says so."""
    now_ms = round(now_s * 1000)
    try:
        records = list(records_of(settings, settings.topics.beats, now_ms - BEATS_RETENTION_MS, follow=False))
    except Refused as error:
        click.echo(f"it is not known whether a controller runs: {error}", err=True)
        return None, {}
    return newest_beats(records, now_ms=now_ms), newest_standbys(records, now_ms=now_ms)


def _newest_rounds(
    settings: Settings,
    wanted: set[str],
    newest: Newest,
    beats: Mapping[str, Running] | None,
    *,
    now_s: float,
) -> list[tuple[Round, int | None]]:
    """The newest summary of each cluster with its controller's epoch. Raises ``NotFound`` naming the clusters without one."""
    known = wanted or set(settings.clusters)
    newest.look_back(
        lambda back_s: records_of(
            settings, settings.topics.audit, round((now_s - back_s) * 1000), follow=False
        ),
        known,
        steps_s=LOOK_BACK_S[:1] if newest.clusters else LOOK_BACK_S,
    )
    missing = sorted(wanted - newest.clusters)
    if missing or not newest.clusters:
        raise NotFound(
            f"{', '.join(missing) or 'any cluster'}: no round on {settings.topics.audit} in the last day: {_explain_missing_round(beats)}"
        )
    return [
        (event, epoch_of(record.headers))
        for record, event in newest.rounds(settings.topics.audit)
        if not wanted or event.cluster in wanted
    ]


def _explain_missing_round(beats: Mapping[str, Running] | None) -> str:
    """Why there is no round."""
    if beats is None:
        return "no controller runs, or no report of the cluster comes"
    running = [f"{each.controller} ({each.instance})" for each in beats.values() if each.runs]
    if not running:
        return "no controller runs"
    return f"no report of the cluster comes to {', '.join(running)}, or its first round is not over"


def _read_standings(settings: Settings, systems: dict[str, System]) -> dict[str, Standing]:
    """The newest control event of each cluster. If the control topic cannot be read, there is none, and a message says so."""
    try:
        return overlay.find_standings(ControlTopic(settings).read(), ClusterSettingsSource(settings), systems)
    except Refused as error:
        click.echo(f"the newest control events are not known: {error}", err=True)
        return {}


def _describe_waiting(event: Round, stands: Standing) -> str | None:
    """The newest control event in words if the round does not obey it; None if it does, or if there is no event."""
    if stands.refused is not None:
        return f"refused by the controller: {stands.refused}"
    written, obeyed = stands.event, event.data.control
    if written is None or (obeyed is not None and obeyed.id == written.id):
        return None
    return f"{written.who or 'somebody'}: {written.why or 'no reason given'} ({written.id}), which no round obeys yet"
