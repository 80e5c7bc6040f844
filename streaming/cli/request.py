"""A change of control that a person asks for: its options, its text, the write, and the round that obeys it."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any
from uuid import uuid4

import click
import msgspec

from policies.wording import time_text
from state.events import System
from state.outputs import Configured, rfc3339
from state.overlay import ControlData, MaintenanceWindow, epoch_ms
from streaming.cli.control import (
    OWN_SETTINGS,
    Edit,
    Planned,
    Standing,
    check_taken,
    check_written,
    find_standings,
    maintenance_of,
    overlay_lines,
    plan,
    read_control,
    window_text,
)
from streaming.cli.options import login_user, settings_options, with_options
from streaming.cli.output import text_of
from streaming.cli.published import Newest, Round, search_rounds
from streaming.contract.envelope import ReadEnvelope
from streaming.process.deadline import Deadline
from streaming.process.exits import NotAcknowledged, Refused, WrongUse, waiting
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.catalog import suggest_nearest
from streaming.settings.sections import NAME_PATTERN
from streaming.systems import input_side

_LOOK_BACK_S = 86_400
"""How far back `--all` looks for clusters on the audit topic: a cluster that reports has a summary every round."""
_LIVE_S = 3600
"""A cluster without a summary for this long may be a misspelt one."""
_PATIENCE_S = 30.0
"""How long to wait after a round could have closed, because reports come late and a batch takes time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of every command that writes a control event; one that only shows what stands has the first three, or the first."""

    settings: Settings
    clusters: tuple[str, ...] = ()
    every: bool = False
    force: bool = False
    """Whether a named cluster may be unknown to the audit topic, the settings and the control topic."""
    why: str = ""
    who: str = ""
    wait: bool = False

    @property
    def only_shows(self) -> bool:
        """Whether it writes no event, which needs a reason."""
        return not self.why


cluster_options = with_options(
    settings_options,
    click.option(
        "--cluster", "clusters", multiple=True, metavar="NAME", help="The cluster. May be repeated."
    ),
    click.option(
        "--all",
        "every",
        is_flag=True,
        help="Every cluster with a round in the last day, in the settings, or changed by a control event.",
    ),
)
_request_options = with_options(
    cluster_options,
    click.option(
        "--wait", is_flag=True, help="Wait until a round obeys it; exit code 7 if none does in time."
    ),
    click.option(
        "--force",
        is_flag=True,
        help="Also for a cluster that is not in the settings and had no round in the last hour, or a broker that its rounds do not name.",
    ),
    click.option("--why", required=True, metavar="TEXT", help="The reason; shown in every round summary."),
    click.option("--who", metavar="NAME", help="Your name; the login user if not given."),
)


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a command that writes a control event; the command gets them as a ``Request``."""
    names = Request.__dataclass_fields__

    @wraps(command)
    def run(**options: Any) -> None:
        asked = {name: options.pop(name) for name in names}
        asked["why"], asked["who"] = asked["why"].strip(), asked["who"] or login_user()
        if not asked["why"]:
            raise click.BadParameter("give a reason: it is shown in every round summary", param_hint="--why")
        command(Request(**asked), **options)

    decorated: Callable[..., None] = _request_options(run)
    return decorated


class KnownCluster(msgspec.Struct, frozen=True):
    """What the newest summary of a cluster says about it."""

    system: System
    configured: Configured | None = None
    brokers_reporting: list[str] = []
    brokers_reporting_count: int = 0
    brokers_missing: list[str] = []
    brokers_missing_count: int = 0

    @property
    def brokers(self) -> set[str] | None:
        """Its brokers, those that did not report too; None where only the first hundred are named, or there is none."""
        found = {*self.brokers_reporting, *self.brokers_missing}
        return found if len(found) == self.brokers_reporting_count + self.brokers_missing_count else None


_summaries = msgspec.json.Decoder(ReadEnvelope[KnownCluster])
Known = Mapping[str, KnownCluster | None]
"""By name, what is known of a cluster that has a round; None where its summary cannot be read."""


def source_of(settings: Settings, known: Known | None) -> ClusterSettingsSource:
    """The settings of every cluster as its controller has shown them; those read here where it has not."""
    shown = {
        cluster: (each.system, each.configured)
        for cluster, each in (known or {}).items()
        if each is not None and each.configured is not None
    }
    return ClusterSettingsSource(settings, shown)


EditOf = Callable[[str, KnownCluster | None, ControlData], Edit]
"""The edit for a cluster, of which this is known and in force. Raises ``WrongUse``."""


def change(request: Request, edit: Edit) -> list[Planned]:
    """``change_each`` with the same edit for every cluster."""
    return change_each(request, lambda *_: edit)


def change_each(request: Request, edit_of: EditOf) -> list[Planned]:
    """Read what is in force, write each cluster's change, read it back, print what holds from when, and wait if ``request.wait``.

    Returns the events that were written.
    """
    if request.every == bool(request.clusters):
        raise click.UsageError("give either --cluster NAME (once or more) or --all")
    settings = request.settings
    _check_names(request)
    before = read_control(settings)  # first: without brokers its error is the only one
    known = _find_known(request, "cluster names are not checked, and rounds are taken for those of Pulsar")
    source, systems = source_of(settings, known), _systems(known)
    stands = find_standings(before, source, systems)
    now_ms, nonce = round(time.time() * 1000), uuid4().hex[:8]
    events = [
        plan(
            cluster,
            edit=edit_of(cluster, (known or {}).get(cluster), stands.get(cluster, Standing()).overlay),
            who=request.who,
            why=request.why,
            stands=stands.get(cluster, Standing()),
            settings=source,
            now_ms=now_ms,
            nonce=nonce,
            system=systems.get(cluster),
        )
        for cluster in _choose(request, stands, known)
    ]
    input_side(settings).append(settings.topics.control, [(event.cluster, event.value) for event in events])
    with waiting(
        "the next round obeys it; `trimtab status` shows what is in force, and the opposite command, such as `resume`, `policy unset` "
        "or `maintenance end`, takes it back"
    ):
        after = read_control(settings)
        check_written(events, before, after)
        check_taken(events, find_standings(after, source, systems))
        for event in events:
            refused = stands.get(event.cluster, Standing()).refused
            if refused is not None:
                click.echo(
                    f"{event.cluster}: this changes the event before the newest one, because the controller refused the newest: {refused}",
                    err=True,
                )
            click.echo(change_text(event), nl=False)
        rounds = _wait_until_obeyed(settings, events) if request.wait else []
    for obeyed in rounds:
        data = obeyed.data
        click.echo(
            f"{obeyed.cluster}: obeyed since round {data.round}, which ended at {time_text(data.end, is_exact=True)}"
        )
    return events


def read_standings(request: Request) -> tuple[dict[str, Standing], ClusterSettingsSource]:
    """What stands now for the clusters of a request, by name, and their settings without it; each with a control event if none is named.

    Raises ``exits.Refused`` and ``WrongUse``.
    """
    _check_names(request)
    events = read_control(request.settings)  # first: without brokers its error is the only one
    known = _find_known(request, "what the controllers are configured with is not known")
    source = source_of(request.settings, known)
    now = datetime.now(UTC)
    stands = {name: each.at(now) for name, each in find_standings(events, source, _systems(known)).items()}
    chosen = _choose(request, stands, known) if request.clusters or request.every else sorted(stands)
    return {name: stands.get(name, Standing()) for name in chosen}, source


def _check_names(request: Request) -> None:
    for name in request.clusters:
        if not NAME_PATTERN.fullmatch(name):
            raise click.BadParameter(f"{name!r}: a cluster's name is 1 to 100 of A-Z a-z 0-9 . _ -")


def _find_known(request: Request, missing: str) -> Known | None:
    """Clusters on the audit topic; None where it cannot be read, and a warning says what is ``missing`` then.

    For named clusters it only shows whether they are misspelt and what their controller is configured with, so a failed read holds up
    no pause.
    """
    newest = Newest(request.settings)
    try:
        newest.read_since(round((time.time() - (_LOOK_BACK_S if request.every else _LIVE_S)) * 1000))
    except Refused as error:
        if request.every:
            raise
        click.echo(f"the audit topic cannot be read, so {missing}: {error}", err=True)
        return None
    found: dict[str, KnownCluster | None] = {}
    for record in newest.records():
        try:
            summary = _summaries.decode(record.value or b"").data
        except msgspec.MsgspecError:  # such a record shows that the cluster exists, and no more
            summary = None
        found[(record.key or b"").decode()] = summary
    return found


def _systems(known: Known | None) -> dict[str, System]:
    """The clusters whose system is known."""
    return {cluster: each.system for cluster, each in (known or {}).items() if each is not None}


def _choose(request: Request, stands: Mapping[str, Standing], known: Known | None) -> list[str]:
    """The clusters to change, by name; raises ``WrongUse`` for a named one that is not known, unless forced."""
    settings = request.settings
    named = {
        *settings.clusters,
        *settings.targets,
        *(name for name, each in stands.items() if each.overlay.changes_anything),
    }
    if request.every:
        found = sorted({*named, *(known or {})})
        if not found:
            raise WrongUse(
                f"no cluster is named in the settings or found on {settings.topics.audit}: use --cluster"
            )
        return found
    names = named | set(known or {})
    strangers = sorted(set(request.clusters) - names)
    if strangers and known is not None and not request.force:
        hints = (
            "; ".join(suggest_nearest(name, names) for name in strangers) if names else "no cluster is known"
        )
        remedy = "" if request.only_shows else ". If the name is right, add --force"
        raise WrongUse(
            f"{', '.join(strangers)}: unknown, with no round in the last hour, no settings and no control event "
            f"({hints}){remedy}"
        )
    return sorted(set(request.clusters))


def _wait_until_obeyed(settings: Settings, events: Sequence[Planned]) -> list[Round]:
    """The first round of each cluster that obeys its event, in the order of the events.

    Raises ``NotAcknowledged`` naming the clusters without one, and ``Refused`` where a controller does not take the settings.
    """
    now_s = time.time()
    wait_s = max(_PATIENCE_S, max(event.first_close_ms for event in events) / 1000 + _PATIENCE_S - now_s)
    until = time_text(rfc3339(round(1000 * (now_s + wait_s))))
    click.echo(f"waiting for a round that obeys it, until {until} at the latest", err=True)
    found = search_rounds(
        settings,
        lambda rounds: acknowledging_rounds(rounds, events),
        count=len(events),
        deadline=Deadline(wait_s),
    )
    for cluster, obeyed in found.items():
        control = obeyed.data.control
        if control is not None and control.problem is not None:
            raise Refused(f"{cluster}: the controller refuses the settings: {control.problem}")
    missing = [event for event in events if event.cluster not in found]
    if missing:
        names = ", ".join(
            f"{event.cluster} (expected from {time_text(rfc3339(event.first_close_ms))} on)"
            for event in missing
        )
        raise NotAcknowledged(
            f"written, but no round obeys it yet: {names}. No controller runs, or no report of the cluster comes: see "
            "`trimtab status`. The event stays, and the next round obeys it. Executors obey a pause already"
        )
    return [found[event.cluster] for event in events]


def acknowledging_rounds(rounds: Iterable[Round], events: Sequence[Planned]) -> dict[str, Round]:
    """By cluster, the first round that names the cluster's event."""
    ids = {event.cluster: event.id for event in events}
    found: dict[str, Round] = {}
    for obeyed in rounds:
        control = obeyed.data.control
        if control is not None and control.id == ids.get(obeyed.cluster):
            found.setdefault(obeyed.cluster, obeyed)
    return found


def change_text(event: Planned) -> str:
    """What an event changes, and from when."""
    before, after = event.before, event.after
    since = f"from round {event.first_round} on, which begins at {time_text(rfc3339(event.first_round_ms), is_exact=True)}"
    at_once = "; executors stop at once" if after.paused and not before.paused else ""
    lines = [
        f"{event.cluster}: {since}{at_once}",
        _line("paused", _pause(before), _pause(after)),
        _line("mode", *(_mode(data, event.configured) for data in (before, after))),
        *_describe_approval(before, after, event.configured),
        *(f"  {change}" for change in event.changes),
        *_maintenance_changes(before, after),
    ]
    if after.resumed_at not in {None, before.resumed_at}:
        lines.append("  actions that failed until now no longer count")
    if after.forget:
        lines.append("  forgotten: all that is remembered of the cluster; at once if the cluster is silent")
    if event.configured is None:
        lines.append(f"  computed with the {OWN_SETTINGS}")
    return text_of(lines)


def _maintenance_changes(before: ControlData, after: ControlData) -> Iterable[str]:
    """What begins and what ends with a change."""
    old, new = dict(maintenance_of(before)), dict(maintenance_of(after))
    for key in sorted({*old, *new}):
        if key not in new:
            yield f"  {window_text(key)}: ends"
        elif old.get(key) != new[key]:
            yield f"  {window_text(key)}: {_describe_end(new[key])}"


def overlay_text(cluster: str, stands: Standing, source: ClusterSettingsSource) -> str:
    """The newest control event of a cluster, as text, beside what the controller is configured with."""
    event, data, configured = stands.event, stands.overlay, source.configured(cluster)
    refused = [] if stands.refused is None else [f"  a newer event is not in force: {stands.refused}"]
    if event is None:
        mode = "" if configured is None else f" (mode {configured.mode})"
        return text_of([f"{cluster}: as configured{mode}, no control event", *refused])
    usual = None if configured is None else source.base(cluster)
    return text_of(
        [
            f"{cluster}: {data.who or 'somebody'} at {time_text(rfc3339(event.time_ms))}: {data.why or 'no reason given'}",
            *refused,
            f"  paused: {_pause(data)}",
            f"  mode: {_mode(data, configured)}",
            *_describe_approval(data, data, configured),
            *standing_lines(data),
            *(f"  {line}" for line in list(overlay_lines(data.settings, usual)) or ["no settings"]),
        ]
    )


def overlay_tree(cluster: str, stands: Standing, source: ClusterSettingsSource) -> dict[str, Any]:
    """The newest control event of a cluster, for a program, and what the controller is configured with; null where that is not known."""
    event, data = stands.event, stands.overlay
    return {
        "cluster": cluster,
        "id": None if event is None else event.id,
        "time": None if event is None else rfc3339(event.time_ms),
        "refused": stands.refused,
        "configured": msgspec.to_builtins(source.configured(cluster)),
        **msgspec.to_builtins(data),
    }


def standing_lines(data: ControlData) -> Iterable[str]:
    """What is under maintenance or drained, with who asked for it and why."""
    for key, each in maintenance_of(data):
        asked = f"by {each.who or 'somebody'}: {each.why or 'no reason given'}"
        yield f"  {window_text(key)}: since {time_text(rfc3339(epoch_ms(each.since)))} {_describe_end(each)}, {asked}"


def _describe_end(window: MaintenanceWindow) -> str:
    return (
        "until it is ended" if window.until is None else f"until {time_text(rfc3339(epoch_ms(window.until)))}"
    )


def _mode(data: ControlData, configured: Configured | None) -> str:
    return _value(data.mode, None if configured is None else configured.mode)


def _describe_approval(before: ControlData, after: ControlData, configured: Configured | None) -> list[str]:
    """A line about approval, only if it is set before or after the change."""
    if not (before.approval or after.approval):
        return []
    usual = None if configured is None else configured.approval
    return [_line("approval", _value(before.approval, usual), _value(after.approval, usual))]


def _value(value: str | None, configured: str | None) -> str:
    """A value, or that it is the configured one; which one that is, where it is known."""
    return value or "as configured" + ("" if configured is None else f" ({configured})")


def _pause(data: ControlData) -> str:
    if not data.paused:
        return "no"
    return "yes" if data.until is None else f"until {time_text(rfc3339(epoch_ms(data.until)))}"


def _line(name: str, before: str, after: str) -> str:
    return f"  {name}: {after}" if before == after else f"  {name}: {before} -> {after}"
