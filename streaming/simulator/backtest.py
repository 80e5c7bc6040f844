"""``trimtab backtest``: what settings would have done to a recorded cluster.

Open loop: every candidate decides on what was recorded, and nothing it decides has an effect. Closed loop: what it decides changes what
the brokers report afterwards. The model, its assumptions and its limits are on the page docs/use/backtest.md.

A first pass over the recording learns what traffic costs the brokers of each cluster, as the controller learns it
(``policies.costs``). Every candidate then reads the recording again from its beginning, in any process.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np

from policies.columns import Floats
from policies.costs import CostMemory, Costs, learn
from policies.usage import CAPACITIES, NOT_MEASURED, percent
from state.closing import Identity
from state.controller import Controller
from state.events import ActionOutcome, ActionResult, BrokerReport, Control, Event, LoadReport
from state.outputs import Output, RoundSummary, Split, Unload
from state.outputs.actions import ROUND_TYPE, SPLIT_TYPE, UNLOAD_TYPE
from state.overlay import ControlData
from state.settings import PulsarSettings, SettingsSource
from state.store import DictStore
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.identity import identity_of
from streaming.simulator.recorded_world import World
from streaming.simulator.runs import ACTING, NOBODY, Candidate, requests_of
from streaming.simulator.score import Counter, Run, series_of

AS_RECORDED = "as recorded"
REFERENCES = frozenset({AS_RECORDED, NOBODY.name})
"""Candidates without settings, with which the others are compared."""

Read = Callable[[], Iterator[tuple[str, Event]]]
"""Every event of the time asked for with its cluster, in the recorded order; picklable."""


_ROUND_MS = 60_000
_FEWEST_BROKERS = 2


class NoFleet(Exception):
    """A recording without a fleet that could be simulated."""


def with_settings(read: Read, *, count: bool, except_policy: bool) -> Iterator[tuple[str, Event]]:
    """The events of a recording. Of what operators asked for only the settings stay, because every candidate acts; or nothing stays.

    ``except_policy``: without their shedding policy, in whose place each candidate has its own.
    """
    for cluster, event in read():
        if not isinstance(event, Control):
            yield cluster, event
        elif count:
            settings, pulsar = event.data.settings, event.data.settings.get("pulsar")
            if except_policy and isinstance(pulsar, dict):
                kept = {key: value for key, value in pulsar.items() if key != "shedding_policy"}
                settings = settings | {"pulsar": kept}
            data = ControlData(settings=settings, who=event.data.who, why=event.data.why)
            yield cluster, msgspec.structs.replace(event, data=data)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survey:
    """A recorded cluster."""

    cluster: str
    brokers: tuple[str, ...]
    """Ascending."""
    bundles_count: int
    """Bundles that they listed last."""
    costs: Costs
    """What traffic costs them, as it is known at the end."""
    controls: tuple[Control, ...]
    """What operators asked for, in order of time."""
    first_ms: int
    """Time of its first load report."""
    last_ms: int
    reports_count: int


@dataclass(slots=True)
class RecordedCosts:
    """Learns round after round, so that a recording of any length needs little memory."""

    _reports_count: int = 0
    _times_ms: tuple[int, int] | None = None
    """Of the first and the last report."""
    _has_bundles: bool = False
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
        self._reports_count += 1
        first_ms, last_ms = self._times_ms or (event.time_ms, event.time_ms)
        self._times_ms = min(first_ms, event.time_ms), max(last_ms, event.time_ms)
        self._has_bundles = self._has_bundles or bool(event.report.bundles)
        self._newest[event.broker] = event.report
        self._waiting.add(event.broker)

    @property
    def is_fleet(self) -> bool:
        """Whether there is something to balance."""
        return len(self._newest) >= _FEWEST_BROKERS and self._has_bundles

    def survey(self, cluster: str, controls: Sequence[Control]) -> Survey:
        """What the recording shows of the cluster; there is a report."""
        brokers, costs = self.costs()
        first_ms, last_ms = self._times_ms or (0, 0)
        return Survey(
            cluster=cluster,
            brokers=brokers,
            bundles_count=len({name for each in self._newest.values() for name in each.bundles}),
            costs=costs,
            controls=tuple(sorted(controls, key=lambda event: event.age_key)),
            first_ms=first_ms,
            last_ms=last_ms,
            reports_count=self._reports_count,
        )

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


def survey(events: Iterable[tuple[str, Event]]) -> dict[str, Survey]:
    """The Pulsar clusters of a recording by name, in one pass. Raises ``NoFleet`` where there is none."""
    clusters: dict[str, RecordedCosts] = defaultdict(RecordedCosts)
    controls: dict[str, list[Control]] = defaultdict(list)
    for cluster, event in events:
        if isinstance(event, LoadReport):
            clusters[cluster].add(event)
        elif isinstance(event, Control):
            controls[cluster].append(event)
    found = {
        name: each.survey(name, controls[name]) for name, each in sorted(clusters.items()) if each.is_fleet
    }
    if not found:
        raise NoFleet("it has no Pulsar cluster with two brokers and a bundle")
    return found


def play_closed(
    read: Read, survey: Survey, candidate: Candidate, judge: PulsarSettings, *, keeps_recorded_moves: bool
) -> Run:
    """Balance the recorded cluster from the first report to the last.

    ``judge`` are the settings that decide how loaded a broker is and how long a round of the score card is, the same for every
    candidate.
    """
    world = World(
        survey.brokers,
        survey.costs,
        judge,
        begins_ms=survey.first_ms,
        keeps_recorded_moves=keeps_recorded_moves,
    )
    loop = _ClosedLoop(survey, candidate, world, judge.rounds.length_s)
    for cluster, event in read():
        if cluster == survey.cluster:
            loop.take(event)
    loop.end_round()
    return Run(
        scenario=survey.cluster,
        candidate=candidate.name,
        seed=0,
        score=loop.counter.score(),
        series=series_of(loop.counter, start_ms=survey.first_ms),
    )


class _ClosedLoop:
    def __init__(self, survey: Survey, candidate: Candidate, world: World, round_s: float) -> None:
        self.counter = Counter(world, survey.brokers, round_s=round_s)
        self._world = world
        self._controller = (
            None
            if candidate.settings is None
            else Controller(survey.cluster, DictStore(), identity=ACTING, settings=candidate.settings)
        )
        self._round_ms = round(1000 * round_s)
        self._next_ms = survey.first_ms + self._round_ms

    def take(self, event: Event) -> None:
        """End the rounds before an event; in a gap of the recording only the first, because nothing is known of the others."""
        if isinstance(event, Control):
            self._step(event)  # it may be far older than the recording
            return
        if event.time_ms >= self._next_ms:
            self.end_round()
            self._next_ms += self._round_ms * ((event.time_ms - self._next_ms) // self._round_ms + 1)
        seen = self._world.take(event)
        if seen is not None:
            self._step(seen)

    def end_round(self) -> None:
        self._world.end_round()
        if self._world.alive.any():
            self.counter.end_round()

    def _step(self, event: Event) -> None:
        """Let the controller decide, carry its actions out at once, and answer as an executor does."""
        if self._controller is None:
            return
        unloads, splits = requests_of(self._controller.step(event).outputs)
        for unload in unloads:
            self.counter.note_decision(unload.bundle)
            moved = self._world.unload(unload.bundle, unload.destination)
            self.counter.note_moved(moved)
            self._answer(unload.id, succeeded=moved.succeeded)
        for split in splits:
            succeeded = self._world.split(split.bundle, split.boundaries)
            self.counter.note_split(succeeded=succeeded)
            self._answer(split.id, succeeded=succeeded)

    def _answer(self, id_: str, *, succeeded: bool) -> None:
        outcome: ActionOutcome = "succeeded" if succeeded else "failed"
        self._step(
            ActionResult(id=f"result/{id_}", time_ms=self._world.now_ms, action_id=id_, outcome=outcome)
        )


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


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate decided."""

    cluster: str
    candidate: str
    rounds: list[OpenRound]
    rejected_count: int
    """Events that its controller refused."""


def play_open(read: Read, cluster: str, name: str, identity: Identity, settings: SettingsSource) -> Opened:
    """Decide on the recording from the first event to the last, including the round that it leaves open."""
    controller = Controller(cluster, DictStore(), identity=identity, settings=settings)
    rounds: list[OpenRound] = []
    rejected_count = 0
    for of_cluster, event in read():
        if of_cluster != cluster or isinstance(event, ActionResult):
            continue
        step = controller.step(event)
        rejected_count += step.rejection is not None
        rounds += _rounds(step.outputs)
    rounds += _rounds(controller.close_open())
    return Opened(cluster=cluster, candidate=name, rounds=rounds, rejected_count=rejected_count)


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
            summary = _SUMMARY.decode(output.data)
            why = OpenRound.pack(
                summary.reason,
                [(each.high_broker, each.detail) for each in summary.examined.heaviest[:_MOST_ROWS]],
                [(each.bundle, each.detail) for each in summary.candidates.heaviest[:_MOST_ROWS]],
            )
            yield OpenRound(end_ms=output.time_ms, acts=acts, packed_why=why)
            acts = []


def jobs_of(
    read: Read,
    survey: Survey,
    chosen: Sequence[tuple[str, Settings]],
    *,
    closed: bool,
    opened: bool,
    keeps_recorded_moves: bool,
) -> list[Callable[[], Run | Opened]]:
    """What is to be played for a cluster. The first candidate's settings say how loaded a broker is."""
    sources = {name: ClusterSettingsSource(settings) for name, settings in chosen}
    jobs: list[Callable[[], Run | Opened]] = []
    if closed:
        judge = sources[chosen[0][0]].base(survey.cluster).pulsar
        nobody = Candidate(name=AS_RECORDED if keeps_recorded_moves else NOBODY.name)
        live = [Candidate(name=name, settings=source) for name, source in sources.items()]
        jobs += [
            partial(play_closed, read, survey, each, judge, keeps_recorded_moves=keeps_recorded_moves)
            for each in [nobody, *live]
        ]
    if opened:
        jobs += [
            partial(play_open, read, survey.cluster, name, identity_of(settings), sources[name])
            for name, settings in chosen
        ]
    return jobs
