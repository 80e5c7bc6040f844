"""``trimtab maintenance`` and ``drain``: what operators take out of balancing, and how far a drain is."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import get_args

import click
import msgspec

from state.closing import GeneralReason
from state.outputs import DrainRow, RoundSummary
from state.overlay import MaintenanceWindow
from state.pulsar.wording import shadow_note
from state.settings import Mode
from streaming.cli.control import Edit, Planned
from streaming.cli.operate import list_command
from streaming.cli.options import Option, broker_of, example, until_option
from streaming.cli.published import Newest, Round, pass_over_outage
from streaming.cli.request import (
    KnownCluster,
    Request,
    change,
    change_each,
    with_request_options,
)
from streaming.cli.summaries import drain_line, left_lines, missed_results, outcome_text, own_lines
from streaming.contract.messages import ControlData
from streaming.process.deadline import Deadline
from streaming.process.exits import NotAcknowledged, WrongUse, waiting
from streaming.settings import Settings
from streaming.settings.catalog import suggest_nearest

WILL_NOT_PASS = ("excluded-namespace", "maintenance", "no-destination", "anti-affinity", "absent")
"""Reasons why a bundle stays at a drained broker that no later round changes by itself, where they last."""
_PATIENCE_S = 300.0
"""How long to wait for a newer round: without one nothing is decided, and there is nothing to show."""
_STUCK_ROUNDS = 3
"""After so many rounds in a row a drain is stuck: in one of them the other brokers may just not have reported."""
_EMPTY_ROUNDS = 2
"""After so many rounds in a row a broker counts as empty: its report of one of them may just have left bundles out."""
_LOOK_S = 1.0


def _brokers_option(*, required: bool = False) -> Option:
    return click.option(
        "--broker",
        "brokers",
        multiple=True,
        required=required,
        metavar="ID",
        help="The broker's id as in its reports; the port may be left out where one broker fits. May be repeated.",
    )


_namespaces_option = click.option(
    "--namespace", "namespaces", multiple=True, metavar="TENANT/NAME", help="The namespace. May be repeated."
)


@click.group("maintenance")
def maintenance_command() -> None:
    """Leave brokers and namespaces alone: no action touches them, and a broker that is away does not count as missing."""


@maintenance_command.command(
    "start",
    short_help="Take brokers and namespaces out of balancing.",
    epilog=example('trimtab maintenance start --cluster east-1 --broker b3:8080 --until 2h --why "new disk"'),
)
@_brokers_option()
@_namespaces_option
@until_option("maintenance end")
@with_request_options
def start_command(
    request: Request, brokers: tuple[str, ...], namespaces: tuple[str, ...], until: datetime | None
) -> None:
    """Make brokers neither source nor destination, and leave the bundles of namespaces where they are.

    `trimtab status` names a namespace of which the next round knows no bundle: its name may be wrong.
    """
    _require_something(brokers, namespaces)
    window = MaintenanceWindow(since=datetime.now(UTC), until=until, who=request.who, why=request.why)

    def edit_of(cluster: str, known: KnownCluster | None, stands: ControlData) -> Edit:
        found = brokers_of(cluster, brokers, known, stands, force=request.force)
        return begin_maintenance(found, namespaces, window)

    change_each(request, edit_of)
    if namespaces:
        click.echo(
            "from the next round on, `trimtab status` says if no bundle of a namespace is known", err=True
        )


@maintenance_command.command(
    "end", epilog=example('trimtab maintenance end --cluster east-1 --broker b3:8080 --why "new disk is in"')
)
@_brokers_option()
@_namespaces_option
@with_request_options
def end_command(request: Request, brokers: tuple[str, ...], namespaces: tuple[str, ...]) -> None:
    """Let brokers and namespaces take part again; a drained broker, too."""
    _require_something(brokers, namespaces)
    change(request, end_maintenance(brokers, namespaces))


maintenance_command.add_command(list_command, "list")


@click.command(
    "drain", epilog=example('trimtab drain --cluster east-1 --broker b3:8080 --why "new disk" --wait')
)
@_brokers_option(required=True)
@with_request_options
def drain_command(request: Request, brokers: tuple[str, ...]) -> None:
    """Move every bundle off brokers, within a budget of its own, and keep them empty until `trimtab maintenance end`.

    With --wait it goes on to show how far the drain is, round by round, until the brokers are empty.
    """
    window = MaintenanceWindow(since=datetime.now(UTC), who=request.who, why=request.why)
    pretending, drained = set[str](), set[str]()

    def edit_of(cluster: str, known: KnownCluster | None, stands: ControlData) -> Edit:
        found = brokers_of(cluster, brokers, known, stands, force=request.force)
        drained.update(found)
        if is_dry_run(stands, known, request.settings.controller.mode):
            pretending.add(cluster)
            click.echo(
                f"{cluster}: it is in dry-run, so nothing will move; the unloads are only shown "
                "(`trimtab mode act` lets it act)",
                err=True,
            )
        if known is not None and is_without_receiver(found, known, stands):
            click.echo(
                f"{cluster}: no broker is left to receive a bundle: every broker of the newest round is drained or under maintenance",
                err=True,
            )
        return begin_drain(found, window)

    moving = [event for event in change_each(request, edit_of) if event.cluster not in pretending]
    if request.wait and moving:
        with waiting(
            "the drain goes on; `trimtab status` shows how far it is, and `trimtab maintenance end` ends it"
        ):
            follow_drains(request.settings, moving, drained)


def is_dry_run(stands: ControlData, known: KnownCluster | None, own: Mode) -> bool:
    """Whether the cluster only shows what it would do; by the mode of the settings read here where the controller's is not known."""
    configured = None if known is None else known.configured
    return (stands.mode or (own if configured is None else configured.mode)) == "dry-run"


def _require_something(brokers: tuple[str, ...], namespaces: tuple[str, ...]) -> None:
    if not brokers and not namespaces:
        raise click.UsageError("give --broker ID or --namespace TENANT/NAME (once or more)")


def brokers_of(
    cluster: str, typed: Collection[str], known: KnownCluster | None, stands: ControlData, *, force: bool
) -> list[str]:
    """The brokers that a person means. Raises ``WrongUse`` for one that neither the newest summary nor the overlay names.

    Where the summary does not name all, or there is none, a warning says that they are taken as they are; with ``force`` they are, too.
    """
    if force or not typed:
        return [*typed]
    brokers = None if known is None else known.brokers
    if not brokers:
        why = (
            "no recent round is known" if known is None else "its newest round does not name all its brokers"
        )
        click.echo(
            f"{cluster}: {why}, so it is not checked that there is a broker {', '.join(typed)}", err=True
        )
        return [*typed]
    brokers |= {*stands.maintenance_brokers, *stands.drained_brokers}
    found = [broker_of(each, brokers) for each in typed]
    strangers = sorted({*found} - brokers)
    if strangers:
        hints = "; ".join(suggest_nearest(each, brokers) for each in strangers)
        raise WrongUse(
            f"{cluster}: the newest round names no broker {', '.join(strangers)} ({hints}). If the name is right, add --force"
        )
    return found


def begin_maintenance(
    brokers: Collection[str],
    namespaces: Collection[str],
    window: MaintenanceWindow,
) -> Edit:
    """Leave brokers and namespaces alone, until it ends or a person ends it; a drain of such a broker ends."""
    return lambda data: msgspec.structs.replace(
        data,
        maintenance_brokers=data.maintenance_brokers | dict.fromkeys(brokers, window),
        maintenance_namespaces=data.maintenance_namespaces | dict.fromkeys(namespaces, window),
        drained_brokers=_without(data.drained_brokers, brokers),
    )


def end_maintenance(brokers: Collection[str], namespaces: Collection[str]) -> Edit:
    """Let brokers and namespaces take part again, drained ones too. The edit raises ``WrongUse`` for a name that is neither."""

    def edit(data: ControlData) -> ControlData:
        known_brokers = {*data.maintenance_brokers, *data.drained_brokers}
        ended = [broker_of(each, known_brokers) for each in brokers]
        for what, names, known in (
            ("", ended, known_brokers),
            ("namespace ", namespaces, {*data.maintenance_namespaces}),
        ):
            strangers = sorted(set(names) - known)
            if strangers:
                raise WrongUse(
                    f"{what}{', '.join(strangers)} is neither under maintenance nor drained; `trimtab control list` shows "
                    "what is"
                )
        return msgspec.structs.replace(
            data,
            maintenance_brokers=_without(data.maintenance_brokers, ended),
            maintenance_namespaces=_without(data.maintenance_namespaces, namespaces),
            drained_brokers=_without(data.drained_brokers, ended),
        )

    return edit


def begin_drain(brokers: Collection[str], window: MaintenanceWindow) -> Edit:
    """Empty brokers. One that is drained already goes on as it began; a drain replaces a maintenance."""
    return lambda data: msgspec.structs.replace(
        data,
        maintenance_brokers=_without(data.maintenance_brokers, brokers),
        drained_brokers=dict.fromkeys(brokers, window) | data.drained_brokers,
    )


def is_without_receiver(brokers: Collection[str], known: KnownCluster, stands: ControlData) -> bool:
    """Whether no broker that reports may receive a bundle once these are drained; not said where only some are named."""
    away = {*brokers, *stands.drained_brokers, *stands.maintenance_brokers}
    return bool(known.brokers) and {*known.brokers_reporting} <= away


def _without(
    windows: Mapping[str, MaintenanceWindow], names: Collection[str]
) -> dict[str, MaintenanceWindow]:
    return {name: each for name, each in windows.items() if name not in names}


def is_stuck(data: RoundSummary) -> bool:
    """Whether every bundle that is left stays for a reason that no later round changes by itself."""
    if data.maintenance is None or not data.maintenance.bundles_left.count:
        return False
    reasons = set(data.maintenance.bundles_left.outcomes)
    ends = any(row.until is not None for row in data.maintenance.namespaces)
    return reasons <= set(WILL_NOT_PASS) and not ("maintenance" in reasons and ends)


def follow_drains(settings: Settings, events: Sequence[Planned], brokers: Collection[str]) -> None:
    """Show how far the drains are; returns when two rounds in a row find the brokers of all clusters empty, but for Pulsar's own.

    Raises ``NotAcknowledged`` if every bundle left stays for a reason that no later round changes, or if no round comes, and
    ``Refused`` if a round cannot be read.
    """
    begin_ms = min(event.time_ms for event in events)
    open_ = {event.cluster for event in events}
    newest, reported = Newest(settings), dict.fromkeys(open_, -1)
    shown: dict[str, list[str]] = {}
    stuck_rounds, empty_rounds = dict.fromkeys(open_, 0), dict.fromkeys(open_, 0)
    deadline = Deadline(_PATIENCE_S)
    while open_:
        with pass_over_outage(deadline):
            newest.read_since(begin_ms)
        for record, event in newest.rounds():
            if event.cluster not in open_ or event.data.round <= reported[event.cluster]:
                continue
            reported[event.cluster] = event.data.round
            deadline = Deadline(_PATIENCE_S)
            begin_ms = max(begin_ms, record.timestamp)
            stuck_rounds[event.cluster] = stuck_rounds[event.cluster] + 1 if is_stuck(event.data) else 0
            is_empty = _show_drains(event, brokers, shown)
            empty_rounds[event.cluster] = empty_rounds[event.cluster] + 1 if is_empty else 0
            if empty_rounds[event.cluster] >= _EMPTY_ROUNDS:
                open_.discard(event.cluster)
            elif stuck_rounds[event.cluster] >= _STUCK_ROUNDS:
                raise NotAcknowledged(
                    f"{event.cluster}: no later round will move the bundles that are left: move them yourself, or remove the "
                    "reason. The drain goes on"
                )
        if open_ and deadline.is_over:
            raise NotAcknowledged(
                f"{', '.join(sorted(open_))}: no round in the last {_PATIENCE_S:g} s, so the drain's progress is not known: see "
                "`trimtab status`. The drain goes on with the next round"
            )
        if open_:
            time.sleep(_LOOK_S)


def _show_drains(event: Round, brokers: Collection[str], shown: dict[str, list[str]]) -> bool:
    """Show how far the drains of the brokers are, without what was ``shown`` of the cluster's round before.

    Returns whether nothing that is moved is left there.
    """
    drains = [] if event.data.maintenance is None else event.data.maintenance.drains
    rows = [each for each in drains if each.name in brokers]
    if not rows:
        return False  # a round from before the drain
    lines, before = progress_lines(event.data, rows), shown.get(event.cluster, [])
    shown[event.cluster] = lines
    for line in lines:
        if line not in before:
            click.echo(f"{event.cluster}: {line}")
    return _is_over(rows)


def _is_over(rows: Sequence[DrainRow]) -> bool:
    return all(row.state in {"empty", "only-system-bundles"} for row in rows)


def progress_lines(data: RoundSummary, rows: Sequence[DrainRow]) -> list[str]:
    """How far drains are, and what keeps the rest: bundles that stay, or actions that nobody carries out."""
    lines = [f"round {data.round}: {drain_line(row)}" for row in rows]
    if _is_over(rows):
        return lines + [line for row in rows for line in own_lines(row)]
    if is_stuck(data):
        return [*lines, *left_lines(data.maintenance, shadow_note(data.shadow))]
    return [*lines, *_hold_lines(data), *(each.advice for each in missed_results(data))]


def _hold_lines(data: RoundSummary) -> Iterable[str]:
    """What holds every bundle in a round, if something does."""
    if data.outcome != "decided":
        return [outcome_text(data)]
    left = [] if data.maintenance is None else data.maintenance.bundles_left.heaviest
    return dict.fromkeys(
        f"{row.outcome}: {row.detail}" for row in left if row.outcome in get_args(GeneralReason)
    )
