"""The newest round of each cluster, and what is known beside it: who leads, whether reports come, what waits to be obeyed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import click
import msgspec

from state.events import System
from state.outputs import ExaminedRow, RoundSummary
from streaming.cli.control import Standing, find_standings, read_control
from streaming.cli.output import asked_text
from streaming.cli.published import (
    LATE_AFTER_ROUNDS,
    Newest,
    Process,
    Round,
    age_s,
    epoch_of,
    is_late,
    length_s,
    newest_leaders,
    newest_processes,
    records_of,
)
from streaming.cli.request import KnownCluster, source_of
from streaming.contract.envelope import read_envelope
from streaming.contract.messages import BrokerLoadMessage, KafkaLoadReportMessage, LoadReportMessage, type_of
from streaming.process.exits import NotFound, Refused
from streaming.settings import Settings
from streaming.settings.catalog import suggest_nearest
from streaming.systems import input_side
from streaming.transport.topics import BEATS_RETENTION_MS

_REPORT_TYPES = (type_of(LoadReportMessage), type_of(BrokerLoadMessage), type_of(KafkaLoadReportMessage))
NEAREST_COUNT = 5
"""Pairs or brokers shown of those that did not fire; the heaviest come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The newest round of a cluster, and what is known beside it."""

    event: Round
    epoch: int | None
    waiting: str | None
    """The newest control event if the round does not obey it yet, or why it was refused; None if the round obeys it or there is none."""
    leaders: Mapping[str, Process] | None
    """By their names, the controllers that lead or led last, by their beats; None where those cannot be read."""
    processes: Sequence[Process] = ()
    reports_come: bool | None = None
    """Whether reports of the cluster come though its rounds are late; None where that is not known."""
    now_ms: int

    @property
    def controller(self) -> str:
        """Name of the controller that closed the round."""
        return self.event.source.rpartition("/")[2]

    @property
    def leader(self) -> Process | None:
        """That controller, by its newest beat within the last hour."""
        return None if self.leaders is None else self.leaders.get(self.controller)

    @property
    def runs(self) -> bool | None:
        """Whether that controller runs; None where it is not known."""
        return None if self.leaders is None else self.leader is not None and self.leader.runs

    @property
    def standbys(self) -> list[Process]:
        """The processes that stand by for it."""
        key = (self.controller, "standby")
        return [each for each in self.processes if each.runs and (each.beat.name, each.beat.role) == key]

    @property
    def age_s(self) -> float:
        """Seconds since the round's end."""
        return age_s(self.event.data, self.now_ms)

    @property
    def is_late(self) -> bool:
        """Whether there should be a newer round."""
        return is_late(self.event.data, self.now_ms)

    @property
    def rounds_behind(self) -> int | None:
        """How many rounds its controller has to catch up; None where it does not."""
        is_catching_up = self.is_late and self.runs and self.reports_come
        return int(self.age_s // length_s(self.event.data)) if is_catching_up else None

    @property
    def nearest(self) -> list[ExaminedRow]:
        """What the policy looked at and did not act on. Pulsar pairs the broker in the middle with itself."""
        rows = self.event.data.examined.heaviest
        near = [row for row in rows if row.outcome != "fired" and row.low_broker != row.high_broker]
        return near[:NEAREST_COUNT]

    @property
    def held(self) -> dict[str, int]:
        """How many bundles of the brokers that fired did not move, by reason."""
        outcomes = self.event.data.candidates.outcomes
        return {name: count for name, count in outcomes.items() if name != "acted"}


def look_up(settings: Settings, wanted: set[str], newest: Newest) -> Iterator[ClusterStatus]:
    """The wanted clusters, all if empty; ``newest`` has the rounds that the previous look found. Raises ``NotFound``."""
    newest.look_back(wanted)  # first: without brokers its error is the only one
    now_ms = round(time.time() * 1000)
    beats = _read_beats(settings, now_ms)
    leaders, processes = beats or (None, [])
    rounds = _newest_rounds(settings, wanted, newest, leaders)
    stands = _read_standings(settings, [event.data for event, _ in rounds])
    reporting = _find_reporting(settings, [event.data for event, _ in rounds], now_ms)
    for event, epoch in rounds:
        waiting = _describe_waiting(event, stands.get(event.cluster, Standing()))
        yield ClusterStatus(
            event=event,
            epoch=epoch,
            waiting=waiting,
            leaders=leaders,
            processes=processes,
            reports_come=None if reporting is None else event.cluster in reporting,
            now_ms=now_ms,
        )


def _find_reporting(settings: Settings, rounds: Sequence[RoundSummary], now_ms: int) -> set[str] | None:
    """Those of the clusters with late rounds of which reports come all the same; None where the input cannot be read."""
    late = {data.cluster.encode(): length_s(data) for data in rounds if is_late(data, now_ms)}
    found: set[str] = set()
    if not late:
        return found
    begin_ms = now_ms - round(1000 * LATE_AFTER_ROUNDS * max(late.values()))
    try:
        with input_side(settings).reader(settings.topics.input, begin=begin_ms) as reader:
            for record in reader.read_to_end():
                if (
                    record.key in late
                    and record.key.decode() not in found
                    and _is_report(record.value or b"")
                ):
                    found.add(record.key.decode())
                    if len(found) == len(late):
                        break
    except Refused as error:
        click.echo(f"it is not known whether reports come: {error}", err=True)
        return None
    return found


def _is_report(value: bytes) -> bool:
    try:
        return read_envelope(value).type in _REPORT_TYPES
    except msgspec.MsgspecError:
        return False


def _read_beats(settings: Settings, now_ms: int) -> tuple[dict[str, Process], list[Process]] | None:
    """Leaders by the controller's name, and all processes. If the beats cannot be read, None, and a message says so."""
    try:
        records = list(records_of(settings, settings.topics.beats, now_ms - BEATS_RETENTION_MS))
    except Refused as error:
        click.echo(f"it is not known whether a controller runs: {error}", err=True)
        return None
    return newest_leaders(records, now_ms=now_ms), newest_processes(records, now_ms=now_ms)


def _newest_rounds(
    settings: Settings, wanted: set[str], newest: Newest, leaders: Mapping[str, Process] | None
) -> list[tuple[Round, int | None]]:
    """The newest summary of each cluster with its controller's epoch. Raises ``NotFound`` naming the clusters without one."""
    missing = sorted(wanted - newest.clusters)
    if missing or not newest.clusters:
        hints = [
            suggest_nearest(name, newest.clusters)
            for name in missing
            if newest.clusters and name not in settings.clusters
        ]
        raise NotFound(
            f"no round of {', '.join(missing) or 'any cluster'} is on {settings.topics.audit} from the last day: "
            f"{'; '.join(hints) or _explain_missing_round(leaders)}"
        )
    return [
        (event, epoch_of(record.headers))
        for record, event in newest.rounds()
        if not wanted or event.cluster in wanted
    ]


def _explain_missing_round(leaders: Mapping[str, Process] | None) -> str:
    """Why there is no round."""
    if leaders is None:
        return "no controller runs, or no report comes: `trimtab doctor` says which"
    running = [f"{name} ({each.beat.instance})" for name, each in leaders.items() if each.runs]
    if not running:
        return "no controller runs: start one with `trimtab run`, or wait if it is starting"
    return f"no report comes to {', '.join(running)}, or the first round is not over: see again in a few minutes, or run `trimtab doctor`"


def _read_standings(settings: Settings, rounds: Sequence[RoundSummary]) -> dict[str, Standing]:
    """The newest control event of each cluster. If the control topic cannot be read, there is none, and a message says so."""
    known = {data.cluster: KnownCluster(system=data.system, configured=data.configured) for data in rounds}
    systems: dict[str, System] = {data.cluster: data.system for data in rounds}
    try:
        return find_standings(read_control(settings), source_of(settings, known), systems)
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
    data = written.data
    return f"{asked_text(data.who, data.why)} ({written.id}), which no round obeys yet"
