"""``trimtab backtest``: what settings would have done to a recorded cluster.

Open loop: every candidate decides on what was recorded, and nothing it decides has an effect. Closed loop: what it decides changes what
the brokers report afterwards. The model, its assumptions and its limits are on the page docs/backtest.md.

A first pass over the recording learns what traffic costs the brokers of each cluster, as the controller learns it
(``policies.costs``). Every candidate then reads the recording again from its beginning, in any process.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

import msgspec
import numpy as np

from policies.columns import Floats
from policies.costs import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    IDLE_CPU_POINTS,
    KBIT_PER_BYTE,
    CostMemory,
    Costs,
    learn,
)
from policies.usage import CAPACITIES, NOT_MEASURED, percent
from state.closing import Identity
from state.controller import Controller
from state.events import ActionOutcome, ActionResult, BrokerReport, Control, Event, LoadReport
from state.outputs import Output, RoundSummary, Split, Unload
from state.outputs.actions import ROUND_TYPE, SPLIT_TYPE, UNLOAD_TYPE
from state.settings import PulsarSettings, SettingsSource
from state.store import DictStore
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.identity import identity_of
from streaming.simulator.fleet import Moved, Order
from streaming.simulator.recorded_world import Landed, World
from streaming.simulator.runs import ACTING, Candidate, Wish, wishes_of
from streaming.simulator.score import Counter, Run, series_of
from streaming.simulator.setup import Machines

AS_RECORDED, NOBODY_ACTS = "as recorded", "nobody acts"
REFERENCES = frozenset({AS_RECORDED, NOBODY_ACTS})
"""Candidates without settings, with which the others are compared."""

Read = Callable[[], Iterator[tuple[str, Event]]]
"""Every event of the time asked for with its cluster, in the recorded order; picklable."""


_ROUND_MS = 60_000


@dataclass(slots=True)
class RecordedCosts:
    """Learns round after round, so that a recording of any length needs little memory."""

    reports_count: int = 0
    _newest: dict[str, BrokerReport] = field(default_factory=dict)
    """The last report of every broker."""
    _waiting: set[str] = field(default_factory=set)
    """Brokers that have reported in the open round."""
    _round: int = 0
    _memory: CostMemory = field(default_factory=CostMemory)

    def add(self, event: LoadReport) -> None:
        """Take a report into account."""
        if event.time_ms // _ROUND_MS > self._round:
            self._end_round()
            self._round = event.time_ms // _ROUND_MS
        self.reports_count += 1
        self._newest[event.broker] = event.report
        self._waiting.add(event.broker)

    def costs(self) -> tuple[tuple[str, ...], Costs]:
        """All brokers, ascending, and their costs as they are known at the end of the recording; there is a report."""
        self._end_round()
        names = tuple(sorted(self._newest))
        return names, self._learn(names, teaches=False)

    def _end_round(self) -> None:
        if self._waiting:
            self._learn(tuple(sorted(self._waiting)), teaches=True)
        self._waiting = set()

    def _learn(self, names: tuple[str, ...], *, teaches: bool) -> Costs:
        resources = np.array([self._newest[name].resources for name in names])
        blank = np.full((len(names), len(CAPACITIES)), NOT_MEASURED)
        limits = np.column_stack([resources[:, :, 1], blank])
        self._memory, costs = learn(
            self._memory,
            names,
            percents=percent(np.column_stack([resources[:, :, 0], blank]), limits),
            limits=limits,
            rates=np.array([_rates(self._newest[name]) for name in names]),
            counts=np.full(len(names), teaches),
            kept=sorted(self._newest),
        )
        return costs


def _rates(report: BrokerReport) -> Floats:
    """Traffic of a broker, (4,): what it reports, in and out as in the bundles it lists."""
    rates: Floats = report.traffic.sum(axis=0)
    for columns, total in ((slice(2), report.messages_per_s), (slice(2, 4), report.bytes_per_s)):
        listed = rates[columns].sum()
        rates[columns] *= total / listed if listed > 0 else 1.0
    return rates


def machines_of(names: tuple[str, ...], costs: Costs) -> Machines:
    """The machines of brokers by what their traffic costs."""
    own = costs.factor[:, :, None] * costs.rule
    limits = costs.limits[:, : BANDWIDTH_OUT + 1]
    measured = limits > 0
    network = np.where(measured, limits, 0.0)[:, BANDWIDTH_IN:].max(axis=1) * 1000 / 8
    return Machines(
        names=names,
        cores=np.where(measured[:, CPU], limits[:, CPU] / 100.0, 1.0),
        network_bytes_per_s=np.where(network > 0, network, np.inf),
        idle_points=np.where(measured[:, CPU], IDLE_CPU_POINTS, 0.0),
        cpu_s_per_message=own[:, CPU, 0] / 100.0,
        cpu_s_per_byte=own[:, CPU, 1] / 100.0,
        network_per_byte=np.stack([own[:, BANDWIDTH_IN], own[:, BANDWIDTH_OUT, ::-1]], axis=1)
        / KBIT_PER_BYTE,
        sessions_count=np.full(len(names), np.inf),
        is_measured=measured,
    )


_FEWEST_BROKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survey:
    """A recorded cluster."""

    cluster: str
    brokers: tuple[str, ...]
    """Ascending."""
    costs: Costs
    """What traffic costs them, as it is known at the end."""
    first_ms: int
    """Time of its first load report."""
    last_ms: int
    reports_count: int


@dataclass(slots=True)
class _Cluster:
    learned: RecordedCosts = field(default_factory=RecordedCosts)
    brokers: set[str] = field(default_factory=set)
    first_ms: int | None = None
    last_ms: int = 0
    has_bundles: bool = False

    def add(self, event: LoadReport) -> None:
        self.learned.add(event)
        self.brokers.add(event.broker)
        self.first_ms = event.time_ms if self.first_ms is None else min(self.first_ms, event.time_ms)
        self.last_ms = max(self.last_ms, event.time_ms)
        self.has_bundles = self.has_bundles or bool(event.report.bundles)


def survey(events: Iterable[tuple[str, Event]]) -> dict[str, Survey]:
    """The Pulsar clusters of a recording by name, in one pass. Raises ``NoFleet`` where there is none."""
    clusters: dict[str, _Cluster] = {}
    for cluster, event in events:
        if isinstance(event, LoadReport):
            clusters.setdefault(cluster, _Cluster()).add(event)
    found = {
        name: _make_survey(name, each)
        for name, each in sorted(clusters.items())
        if len(each.brokers) >= _FEWEST_BROKERS and each.has_bundles
    }
    if not found:
        raise NoFleet("it has no Pulsar cluster with two brokers and a bundle between --from and --to")
    return found


def _make_survey(name: str, cluster: _Cluster) -> Survey:
    brokers, costs = cluster.learned.costs()
    return Survey(
        cluster=name,
        brokers=brokers,
        costs=costs,
        first_ms=cluster.first_ms or 0,
        last_ms=cluster.last_ms,
        reports_count=cluster.learned.reports_count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedJob:
    """One candidate on one recorded cluster."""

    read: Read
    survey: Survey
    candidate: Candidate
    judge: PulsarSettings
    """The settings that decide how loaded a broker is and how long a round of the score card is, the same for every candidate."""
    keeps_recorded_moves: bool


def play_closed(job: ClosedJob) -> Run:
    """Balance the recorded cluster from the first report to the last."""
    return _Loop(job).play()


class _Loop:
    def __init__(self, job: ClosedJob) -> None:
        self._job = job
        brokers = job.survey.brokers
        self._world = World(
            brokers, job.survey.costs, job.judge, keeps_recorded_moves=job.keeps_recorded_moves
        )
        self._counter = Counter(self._world, brokers, round_s=job.judge.rounds.length_s)
        settings, cluster = job.candidate.settings, job.survey.cluster
        self._controller = (
            None if settings is None else Controller(cluster, DictStore(), identity=ACTING, settings=settings)
        )
        self._round_ms = round(1000 * job.judge.rounds.length_s)
        self._next_ms = job.survey.first_ms + self._round_ms

    def play(self) -> Run:
        job, world = self._job, self._world
        for cluster, event in job.read():
            if cluster != job.survey.cluster:
                continue
            self._end_rounds(event.time_ms)
            seen = world.take(event)
            if seen is not None and self._controller is not None:
                self._act(self._controller.step(seen).outputs)
        self._end_round()
        return Run(
            scenario=job.survey.cluster,
            candidate=job.candidate.name,
            seed=0,
            score=self._counter.score(),
            series=series_of(self._counter, start_ms=job.survey.first_ms),
        )

    def _end_rounds(self, time_ms: int) -> None:
        """End the rounds before an event; in a gap of the recording only the first, because nothing is known of the others."""
        if time_ms < self._next_ms:
            return
        self._end_round()
        self._next_ms += self._round_ms * ((time_ms - self._next_ms) // self._round_ms + 1)

    def _end_round(self) -> None:
        self._world.end_round()
        if self._world.alive.any():
            self._counter.end_round()

    def _act(self, outputs: list[Output]) -> None:
        wishes, cuts = wishes_of(outputs)
        for wish in wishes:
            self._unload(wish)
        for each in cuts:
            succeeded = self._world.split(each.bundle, each.boundaries)
            self._counter.splits += succeeded
            self._answer(each.id, succeeded=succeeded)

    def _unload(self, wish: Wish) -> None:
        self._counter.note_decision(wish.bundle)
        landed = self._world.unload(wish.bundle, wish.destination)
        self._counter.note_moved(self._make_moved(wish, landed))
        self._answer(wish.id, succeeded=landed is not None)

    def _make_moved(self, wish: Wish, landed: Landed | None) -> Moved:
        time_s = (self._world.now_ms - self._job.survey.first_ms) / 1000
        order = Order(id=wish.id, bundle=wish.bundle, destination=None, begins_s=time_s, fails=landed is None)
        if landed is None:
            return Moved(order=order, succeeded=False, time_s=time_s)
        return Moved(
            order=order,
            succeeded=True,
            time_s=time_s,
            source=landed.source,
            destination=landed.destination,
            messages_per_s=landed.messages_per_s,
        )

    def _answer(self, id_: str, *, succeeded: bool) -> None:
        """Give the controller the result of an action, as an executor does."""
        outcome: ActionOutcome = "succeeded" if succeeded else "failed"
        assert self._controller is not None
        result = ActionResult(id=f"result/{id_}", time_ms=self._world.now_ms, action_id=id_, outcome=outcome)
        self._act(self._controller.step(result).outputs)


_MOST_ROWS = 25
"""How many pairs and bundles of a round are kept to say why nothing was done: the heaviest."""
_UNLOAD, _SPLIT = msgspec.json.Decoder(Unload), msgspec.json.Decoder(Split)
_SUMMARY = msgspec.json.Decoder(RoundSummary)


class Act(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An action that was decided; two candidates decide the same one if all but the reason is equal."""

    kind: str
    """`unload` or `split`."""
    bundle: str
    source: str
    """Broker that has the bundle."""
    destination: str | None
    """Broker it goes to; null where Pulsar chooses, and for a split."""
    reason: str

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What is done, whatever the reason."""
        return (self.kind, self.bundle, self.destination)


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """A round's reasons for what it did not do."""

    reason: str
    """Reason of the round."""
    pairs: list[tuple[str, str]]
    """The broker that would shed, and the outcome with its numbers."""
    bundles: list[tuple[str, str]]
    """A bundle, and its outcome with what caused it."""


class OpenRound(msgspec.Struct, frozen=True, kw_only=True):
    """A round of a candidate."""

    end_ms: int
    acts: list[Act]
    packed_why: bytes

    @staticmethod
    def pack(reason: str, pairs: list[tuple[str, str]], bundles: list[tuple[str, str]]) -> bytes:
        """A ``Why`` as it is kept: a month has tens of thousands of rounds."""
        return zlib.compress(msgspec.msgpack.encode(Why(reason=reason, pairs=pairs, bundles=bundles)), 1)

    def unpack_reasons(self) -> Why:
        """The reasons, unpacked."""
        return _WHY.decode(zlib.decompress(self.packed_why))


_WHY = msgspec.msgpack.Decoder(Why)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJob:
    """One candidate on one recorded cluster."""

    read: Read
    cluster: str
    name: str
    identity: Identity
    settings: SettingsSource


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate decided."""

    cluster: str
    candidate: str
    rounds: list[OpenRound]
    rejected_count: int
    """Events that its controller refused."""


def play_open(job: OpenJob) -> Opened:
    """Decide on the recording from the first event to the last, including the round that it leaves open."""
    controller = Controller(job.cluster, DictStore(), identity=job.identity, settings=job.settings)
    rounds: list[OpenRound] = []
    rejected_count = 0
    for cluster, event in job.read():
        if cluster != job.cluster or isinstance(event, Control | ActionResult):
            continue
        step = controller.step(event)
        rejected_count += step.rejection is not None
        rounds += _rounds(step.outputs)
    rounds += _rounds(controller.close_open())
    return Opened(cluster=job.cluster, candidate=job.name, rounds=rounds, rejected_count=rejected_count)


def _rounds(outputs: list[Output]) -> Iterator[OpenRound]:
    acts: list[Act] = []
    for output in outputs:
        if output.type == UNLOAD_TYPE:
            unload = _UNLOAD.decode(output.data)
            acts.append(
                Act(
                    kind="unload",
                    bundle=unload.bundle,
                    source=unload.source_broker,
                    destination=unload.destination_broker,
                    reason=unload.reason,
                )
            )
        elif output.type == SPLIT_TYPE:
            cut = _SPLIT.decode(output.data)
            acts.append(
                Act(kind="split", bundle=cut.bundle, source=cut.broker, destination=None, reason=cut.reason)
            )
        elif output.type == ROUND_TYPE:
            yield OpenRound(
                end_ms=output.time_ms, acts=acts, packed_why=_pack_reasons(_SUMMARY.decode(output.data))
            )
            acts = []


def _pack_reasons(summary: RoundSummary) -> bytes:
    return OpenRound.pack(
        summary.reason,
        [(each.high_broker, each.detail) for each in summary.examined.heaviest[:_MOST_ROWS]],
        [(each.bundle, each.detail) for each in summary.candidates.heaviest[:_MOST_ROWS]],
    )


Job = ClosedJob | OpenJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Settings to compare."""

    name: str
    identity: Identity
    settings: ClusterSettingsSource

    @classmethod
    def of(cls, name: str, settings: Settings) -> Self:
        """The settings of a file under a name."""
        return cls(name=name, identity=identity_of(settings), settings=ClusterSettingsSource(settings))


def jobs_of(
    read: Read,
    survey: Survey,
    contenders: list[Contender],
    *,
    closed: bool,
    opened: bool,
    keeps_recorded_moves: bool,
) -> list[Job]:
    """What is to be played for a cluster. The first contender's settings say how loaded a broker is."""
    jobs: list[Job] = []
    if closed:
        nobody = Candidate(name=AS_RECORDED if keeps_recorded_moves else NOBODY_ACTS, kind="nobody")
        live = [Candidate(name=each.name, kind="live", settings=each.settings) for each in contenders]
        jobs += [
            ClosedJob(
                read=read,
                survey=survey,
                candidate=candidate,
                judge=contenders[0].settings.base(survey.cluster).pulsar,
                keeps_recorded_moves=keeps_recorded_moves,
            )
            for candidate in [nobody, *live]
        ]
    if opened:
        jobs += [
            OpenJob(
                read=read,
                cluster=survey.cluster,
                name=each.name,
                identity=each.identity,
                settings=each.settings,
            )
            for each in contenders
        ]
    return jobs


def play_job(job: Job) -> Run | Opened:
    """Play one job."""
    return play_closed(job) if isinstance(job, ClosedJob) else play_open(job)


def sorted_results(jobs: list[Job], results: list[Run | Opened]) -> tuple[list[Run], list[Opened]]:
    """Closed and open runs in the order of their jobs."""
    closed = {(each.scenario, each.candidate): each for each in results if isinstance(each, Run)}
    opened = {(each.cluster, each.candidate): each for each in results if isinstance(each, Opened)}
    return (
        [closed[job.survey.cluster, job.candidate.name] for job in jobs if isinstance(job, ClosedJob)],
        [opened[job.cluster, job.name] for job in jobs if isinstance(job, OpenJob)],
    )


class NoFleet(Exception):
    """A recording without a fleet that could be simulated."""
