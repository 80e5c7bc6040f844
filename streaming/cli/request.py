"""A change of control that a person asks for: the options, the text, the write, and the round that obeys it."""

import getpass
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar
from uuid import uuid4

import click
import msgspec

from state.events import System
from state.outputs import rfc3339
from streaming.cli import control
from streaming.cli.configured import settings_options
from streaming.cli.control import (
    Asker,
    BadChange,
    ControlTopic,
    Edit,
    KnownCluster,
    Planned,
    Standing,
    check_taken,
    check_written,
    encode_change,
    known_clusters_of,
    upkeep_of,
)
from streaming.cli.published import Round, UnreadableEvent, read_round, search_until
from streaming.contract.decode import to_ms
from streaming.contract.messages import ControlData, SpellData
from streaming.ports.reading import TopicRecord
from streaming.process.deadline import Deadline
from streaming.process.exits import NotAcknowledged, Refused, WrongUse
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.errors import suggest_nearest
from streaming.settings.sections import NAME_PATTERN


def change_text(event: Planned) -> str:
    """What an event changes, and from when."""
    before, after = event.before, event.after
    lines = [
        _line("paused", _pause(before), _pause(after)),
        _line("mode", before.mode or "as configured", after.mode or "as configured"),
        *_describe_approval(before, after),
        *(f"  {change}" for change in event.changes),
        *change_lines(before, after),
        *_describe_resume(before, after),
        *(
            ["  forgotten: all that is remembered of the cluster; at once if the cluster is silent"]
            if after.forget
            else []
        ),
    ]
    since = f"from round {event.first_round} on, which begins at {rfc3339(event.first_round_ms)}"
    at_once = "; executors stop at once" if after.paused else ""
    return f"{event.cluster}: {since}{at_once}\n" + "".join(f"{line}\n" for line in lines)


def _describe_resume(before: ControlData, after: ControlData) -> list[str]:
    if after.resumed_at is None or after.resumed_at == before.resumed_at:
        return []
    return ["  actions that failed until now no longer count"]


def _describe_approval(before: ControlData, after: ControlData) -> list[str]:
    """A line about approval, only if it is set before or after the change."""
    if not (before.approval or after.approval):
        return []
    return [_line("approval", before.approval or "as configured", after.approval or "as configured")]


def _line(name: str, before: str, after: str) -> str:
    return f"  {name}: {after}" if before == after else f"  {name}: {before} -> {after}"


def _pause(data: ControlData) -> str:
    if not data.paused:
        return "no"
    return "yes" if data.until is None else f"until {rfc3339(to_ms(data.until))}"


def overlay_text(cluster: str, stands: Standing) -> str:
    """The newest control event of a cluster, as text."""
    event = stands.event
    lines = [] if stands.refused is None else [f"  a newer event is not in force: {stands.refused}"]
    if event is None:
        return "".join(f"{line}\n" for line in [f"{cluster}: as configured, no control event", *lines])
    data = stands.overlay
    settings = list(encode_change(data.settings)) or ["no settings"]
    head = (
        f"{cluster}: {event.who or 'somebody'} at {rfc3339(event.time_ms)}: {event.why or 'no reason given'}"
    )
    lines += [f"  paused: {_pause(data)}", f"  mode: {data.mode or 'as configured'}"]
    lines += [*_describe_approval(data, data), *standing_lines(data)]
    return "".join(f"{line}\n" for line in [head, *lines, *(f"  {each}" for each in settings)])


def overlay_tree(cluster: str, stands: Standing) -> dict[str, Any]:
    """The newest control event of a cluster, for a program."""
    event, data = stands.event, stands.overlay
    return {
        "cluster": cluster,
        "id": None if event is None else event.id,
        "time": None if event is None else rfc3339(event.time_ms),
        "refused": stands.refused,
        **msgspec.to_builtins(data),
    }


def change_lines(before: ControlData, after: ControlData) -> Iterable[str]:
    """What begins and what ends with a change."""
    old, new = dict(upkeep_of(before)), dict(upkeep_of(after))
    for key in sorted({*old, *new}):
        if key not in new:
            yield f"  {' '.join(key)}: ends"
        elif old.get(key) != new[key]:
            yield f"  {' '.join(key)}: {_describe_end(new[key])}"


def standing_lines(data: ControlData) -> Iterable[str]:
    """What is under maintenance or drained, with who asked for it and why."""
    for key, each in upkeep_of(data):
        asked = f"by {each.who or 'somebody'}: {each.why or 'no reason given'}"
        yield f"  {' '.join(key)}: since {rfc3339(to_ms(each.since))} {_describe_end(each)}, {asked}"


def _describe_end(spell: SpellData) -> str:
    return "until it is ended" if spell.until is None else f"until {rfc3339(to_ms(spell.until))}"


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
    stands = control.find_standings(before, source, systems)
    now_ms = round(time.time() * 1000)
    plan = partial(
        control.plan, edit=edit, asker=asker, settings=source, now_ms=now_ms, nonce=uuid4().hex[:8]
    )
    events = [
        check(partial(plan, cluster, stands=stands.get(cluster, Standing()), system=systems.get(cluster)))
        for cluster in clusters_of(target, settings, stands, known)
    ]
    topic.write(events)
    after = topic.read()
    check_written(events, before, after)
    check_taken(events, control.find_standings(after, source, systems))
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


_PATIENCE_S = 30.0
"""How long to wait after a round could have closed, because reports come late and a batch takes time."""


def wait_until_obeyed(settings: Settings, events: Sequence[Planned]) -> list[Round]:
    """The first round of each cluster that obeys its event, in the order of the events.

    Raises ``NotAcknowledged`` naming the clusters without one, and ``Refused`` where a controller does not take the settings.
    """
    until_s = max(event.first_close_ms for event in events) / 1000 + _PATIENCE_S
    deadline = Deadline(max(_PATIENCE_S, until_s - time.time()))
    found = search_until(
        settings,
        lambda records: acknowledging_rounds(records, events),
        count=len(events),
        deadline=deadline,
    )
    _require_all(events, found)
    return [found[event.cluster] for event in events]


def acknowledging_rounds(records: Iterable[TopicRecord], events: Sequence[Planned]) -> dict[str, Round]:
    """By cluster, the first summary among the records that names the cluster's event."""
    ids = {event.cluster: event.id for event in events}
    found: dict[str, Round] = {}
    for record in records:
        try:
            event = read_round(record.value or b"")
        except UnreadableEvent:
            continue
        control = event.data.control
        if control is not None and control.id == ids.get(event.cluster):
            found.setdefault(event.cluster, event)
    return found


def _require_all(events: Sequence[Planned], found: Mapping[str, Round]) -> None:
    for cluster, event in found.items():
        control = event.data.control
        if control is not None and control.problem is not None:
            raise Refused(f"{cluster}: the controller refuses the settings: {control.problem}")
    missing = [event for event in events if event.cluster not in found]
    if missing:
        names = ", ".join(
            f"{event.cluster} (expected from {rfc3339(event.first_close_ms)} on)" for event in missing
        )
        raise NotAcknowledged(
            f"written, but no round obeys it yet: {names}. No controller runs, or no report of the cluster comes: see "
            "`trimtab status`. The event stays, and the next round obeys it. Executors obey a pause already"
        )
