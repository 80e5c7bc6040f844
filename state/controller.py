"""One cluster as a state machine: an event in, outputs out; memory written once, at the end of a batch.

Invariants: the outputs do not depend on the order of events within the lateness, on duplicates, or on how events are
cut into batches; every event ends as exactly one of used, superseded, late or rejected; ``commit`` is the only write.

Not thread-safe. After an exception the controller must be thrown away: the store still holds the memory from before the batch.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from policies.wording import digits
from state import control, memory, refusals, rounds, systems
from state.closing import Identity
from state.events import (
    NOWHERE,
    ActionResult,
    Approval,
    ClusterFacts,
    Control,
    Coordinates,
    Event,
    KafkaLoadReport,
    LoadReport,
    Reassignment,
    Rejection,
    Tick,
)
from state.events import System as SystemName
from state.layouts import FRESH, seal
from state.memory import (
    Header,
    OpenRound,
    Waiting,
    WaitingKey,
    decode_header,
    encode_header,
)
from state.outputs import Output
from state.report_buffer import ReportBuffer, widen
from state.rounds import PASSES_THROUGH, HeaderSnapshot, Memory, Round, refusal
from state.settings import ClusterSettings, SettingsSource
from state.store import Store
from state.system import System

Result = Literal["used", "superseded", "late", "rejected"]
"""How an event ends."""
USED: Result = "used"
SUPERSEDED: Result = "superseded"
LATE: Result = "late"
REJECTED: Result = "rejected"


class RoundLengthError(Exception):
    """The memory was built with rounds of another length."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one event led to."""

    outputs: list[Output] = field(default_factory=list)
    rejection: Rejection | None = None


class Controller:
    """Runs the events of one cluster against its store."""

    def __init__(
        self,
        cluster: str,
        store: Store,
        *,
        identity: Identity,
        settings: SettingsSource,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._identity = identity
        self._settings = settings
        self._base: ClusterSettings = settings.base(cluster)
        self._header = self._load_header()
        self._rounds = systems.rounds_of(self._header.system, self._base)
        self._remembered: Any = None
        """What the cluster's system remembers; None until it is read from the store."""
        self._remembered_changed = False
        self._is_forgotten = False
        """Whether the store still holds the memory of a cluster that is forgotten."""
        self._waiting = self._room()
        self._known_results: dict[int, set[ActionResult]] = {}
        self._results: Counter[tuple[type[Event], Result]] = Counter()

    def _load_header(self) -> Header:
        value = self._store.header()
        if value is None:
            return Header(length_ms=self._base.pulsar.rounds.length_ms)
        header = decode_header(value)
        if header.system is None:
            header.length_ms = self._base.pulsar.rounds.length_ms
            return header
        length_ms = systems.rounds_of(header.system, self._base).length_ms
        if header.length_ms != length_ms:
            raise RoundLengthError(
                f"cluster {self._cluster}: its memory has rounds of {digits(header.length_ms / 1000)} s, the settings say "
                f"length_s = {digits(length_ms / 1000)}: set it back, or start over with {FRESH}"
            )
        return header

    @property
    def is_known(self) -> bool:
        """Whether the cluster exists: a load report of it was accepted once."""
        return self._header.is_known

    @property
    def is_forgotten(self) -> bool:
        """Whether the cluster existed and does not exist any more; true only until ``commit``."""
        return self._is_forgotten and not self._header.is_known

    def take_results(self) -> Counter[tuple[type[Event], Result]]:
        """How many events of each type ended with each result, since the last call."""
        results, self._results = self._results, Counter()
        return results

    def step(self, event: Event, where: Coordinates = NOWHERE) -> Step:
        """Take one event with its coordinates in the log; the outputs are those of the rounds it closes."""
        taken = self._take(event, where)
        if isinstance(taken, Rejection):
            return self._count(event, REJECTED, Step(rejection=taken))
        if isinstance(taken, tuple):
            self._wait(event, *taken)
        else:
            self._results[type(event), taken] += 1
        if taken == LATE or isinstance(event, Control | Approval) or self._header.system is None:
            return Step()
        return Step(outputs=self._advance(event.time_ms))

    def _wait(self, event: Event, key: WaitingKey, new: Waiting) -> None:
        if not self._waiting.put(self._header.rounds[key.round], key, new):
            self._results[type(event), SUPERSEDED] += 1

    def _take(self, event: Event, where: Coordinates) -> Rejection | Result | tuple[WaitingKey, Waiting]:
        """The result of an event, or the part of it that waits for its round. A fault of ours refuses the event and changes nothing."""
        before = HeaderSnapshot.from_header(self._header, event.time_ms // self._header.length_ms)
        remembered, remembered_changed = self._remembered, self._remembered_changed
        try:
            return (
                refusals.refuse(event, where, self._header, self._cluster, self._settings)
                or self._refuse_too_much(event)
                or self._keep(event, where.partition)
            )
        except PASSES_THROUGH:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end the query of all clusters
            self._header, self._known_results = before.restore(), {}
            self._remembered, self._remembered_changed = remembered, remembered_changed
            self._rounds = systems.rounds_of(self._header.system, self._base)
            return refusal(error)

    def _keep(self, event: Event, partition: int | None) -> Result | tuple[WaitingKey, Waiting]:
        system = systems.shown_by(type(event))
        if self._header.system is None and system is None:
            return self._keep_early(event, partition)
        if isinstance(event, Control):
            return self._take_control(event)
        if isinstance(event, Approval):
            return self._take_approval(event)
        if partition is not None:
            self._header.partition = partition
        if self._is_late(event):
            return LATE
        if self._header.system is None and system is not None:
            self._adopt(system)
        self._begin(event.time_ms)
        return self._put_in_round(event)

    def _keep_early(self, event: Event, partition: int | None) -> Result:
        """Keep an event until the cluster's system is known."""
        if isinstance(event, ClusterFacts) and self._is_late(event):
            return LATE
        if not isinstance(event, Control) and partition is not None:
            self._header.partition = partition
        ended = control.keep_pending(self._header, event, systems.all_rounds(self._base))
        if ended == USED and isinstance(event, Control) and event.data.forget:
            self._forget_if_silent(event)
        return ended

    def _forget_if_silent(self, event: Control) -> bool:
        is_silent = control.is_silent_before(self._header, event, self._rounds)
        if is_silent:
            self._forget()
        return is_silent

    def _adopt(self, system: SystemName) -> None:
        """Take what came before the system was known, as if it had been known. No round of it has a report, so none has a summary."""
        before = self._header
        self._rounds = systems.rounds_of(system, self._base)
        self._header = Header(
            length_ms=self._rounds.length_ms,
            partition=before.partition,
            system=system,
        )
        self._known_results = {}
        # nothing is stored before the system is known
        self._remembered = systems.decode_memory(system, None)
        for record in before.early:
            self._move_clock(record.clock_ms)
            self._take_again(control.pending_event(record))
        self._move_clock(before.newest_ms)

    def _move_clock(self, time_ms: int | None) -> None:
        if time_ms is not None:
            self._begin(time_ms)
            self._advance(time_ms)

    def _take_again(self, event: Event) -> None:
        if isinstance(event, Control):
            control.take(self._header, event, self._rounds)
            if event.data.forget:
                control.schedule_forgetting(self._header, event, self._rounds)
        elif not self._is_late(event):
            self._begin(event.time_ms)
            self._put_in_round(event)

    def _take_control(self, event: Control) -> Result:
        if not control.take(self._header, event, self._rounds):
            return SUPERSEDED
        if event.data.forget and not self._forget_if_silent(event):
            control.schedule_forgetting(self._header, event, self._rounds)
        return USED

    def _take_approval(self, event: Approval) -> Result:
        """Keep an approval for the first round that closes with a summary, whatever its own time is."""
        if event in self._header.approvals:
            return SUPERSEDED
        self._header.approvals.append(event)
        return USED

    def _forget(self) -> None:
        """Forget the cluster at once, with all bytes; later events of the same batch begin a new memory.

        What waits for a round of a cluster that is silent since has no round any more: the control event supersedes it.
        """
        for number, open_round in self._header.rounds.items():
            for key, value in self._waiting.take(number, open_round).items():
                self._results[systems.event_of(key.kind, value), SUPERSEDED] += 1
        self._rounds = self._base.pulsar.rounds
        self._header = control.keep_newest_control(self._header, self._rounds.length_ms)
        self._remembered = None
        self._waiting, self._known_results = self._room(), {}
        self._is_forgotten = True

    def close_open(self) -> list[Output]:
        """Close every open round, as if time had passed them; for the end of a recording."""
        if not self._header.rounds:
            return []
        last = max(self._header.rounds)
        lateness_ms = self._rounds.lateness_ms
        return self._advance((last + 1) * self._header.length_ms + lateness_ms)

    def commit(self) -> None:
        """Write what changed."""
        if self._is_forgotten:
            self._store.clear()
            self._is_forgotten = False
        self._waiting.flush(self._header.rounds)
        if self._header != Header(length_ms=self._header.length_ms):
            self._store.put_header(encode_header(self._header))
        if self._remembered is not None and self._remembered_changed:
            self._store.put_fleet(seal(self._remembered))
        self._remembered_changed = False

    def _count(self, event: Event, result: Result, step: Step) -> Step:
        self._results[type(event), result] += 1
        return step

    def _refuse_too_much(self, event: Event) -> Rejection | None:
        if isinstance(event, Approval):
            return memory.refused_approval(len(self._header.approvals))
        number = event.time_ms // self._header.length_ms
        open_round = self._header.rounds.get(number, OpenRound())
        if isinstance(event, ActionResult):
            if self._header.system is None:
                return control.refuse_pending(self._header, event, systems.all_rounds(self._base))
            known = self._results_of(number, open_round) if number in self._header.rounds else ()
            return memory.refused_result(event, known)
        return memory.refusal(systems.waiting_of(event, number), open_round)

    def _is_late(self, event: Event) -> bool:
        """Whether the round of an event has closed; a first report is judged by the rounds of the system it shows."""
        header = self._header
        if header.system is None and header.newest_ms is not None:
            rounds = systems.limits_for(event, None, self._base)
            return event.time_ms // rounds.length_ms < rounds.first_open(header.newest_ms)
        return header.next_round is not None and event.time_ms // header.length_ms < header.next_round

    def _begin(self, time_ms: int) -> None:
        """The first event of a cluster starts its clock."""
        if self._header.next_round is None:
            self._header.newest_ms = time_ms
            self._header.next_round = self._rounds.first_open(time_ms)

    def _put_in_round(self, event: Event) -> Result | tuple[WaitingKey, Waiting]:
        """Put an event into its round. This is the last step with an event, so nothing after it has to be undone."""
        number = event.time_ms // self._header.length_ms
        open_round = self._header.rounds.setdefault(number, OpenRound())
        if isinstance(event, LoadReport | KafkaLoadReport | Reassignment):
            self._header.is_known = True
            widen(open_round.spans, event.time_ms, self._rounds.max_report_age_ms)
        waits = systems.waiting_of(event, number)
        if waits is not None:
            return waits
        is_new = True
        if isinstance(event, ActionResult):
            is_new = self._take_result(event, number, open_round)
        elif isinstance(event, Tick):
            is_new = open_round.tick is None or open_round.tick.age_key < event.age_key
            open_round.tick = event if is_new else open_round.tick
        elif isinstance(event, ClusterFacts):
            is_new = open_round.facts is None or open_round.facts.age_key < event.age_key
            open_round.facts = event if is_new else open_round.facts
        return USED if is_new else SUPERSEDED

    def _results_of(self, number: int, open_round: OpenRound) -> set[ActionResult]:
        """The results of a round as a set, because a round may have very many."""
        known = self._known_results.setdefault(number, set())
        if len(known) != len(open_round.results):
            known.update(open_round.results)
        return known

    def _take_result(self, event: ActionResult, number: int, open_round: OpenRound) -> bool:
        known = self._results_of(number, open_round)
        if event in known:
            return False
        known.add(event)
        open_round.results.append(event)
        return True

    def _advance(self, time_ms: int) -> list[Output]:
        """Move the clock; close, in order, the rounds whose end + lateness it has reached."""
        header = self._header
        header.newest_ms = time_ms if header.newest_ms is None else max(header.newest_ms, time_ms)
        first_open = self._rounds.first_open(header.newest_ms)
        if header.next_round is not None and first_open <= header.next_round:
            return []
        outputs: list[Output] = []
        for number in sorted(number for number in header.rounds if number < first_open):
            outputs.extend(self._close(number))
        self._header.next_round = first_open
        return outputs

    def _close(self, number: int) -> list[Output]:
        """Close a round. The store is read first, so that its errors are not taken for errors of the round."""
        waiting = self._waiting.take(number, self._header.rounds[number])
        header, system = self._header, systems.system_of(self._header.system)
        remembered = self._load(system) if system.needs_memory(header.rounds[number]) else None
        ended = Round(
            cluster=self._cluster,
            number=number,
            waiting=waiting,
            identity=self._identity,
            settings=self._settings,
            system=system,
        )
        after, outputs = rounds.close(ended, Memory(header=header, own=remembered))
        self._header = after.header
        self._known_results.pop(number, None)
        if after.own is not remembered:
            self._remembered, self._remembered_changed = after.own, True
        for type_, count in Counter(
            systems.event_of(key.kind, value) for key, value in waiting.items()
        ).items():
            self._results[type_, USED] += count
        return outputs

    def _load(self, system: System[Any]) -> Any:
        if self._remembered is None:
            stored = None if self._is_forgotten else self._store.fleet()
            self._remembered = systems.decode_memory(system.name, stored)
        return self._remembered

    def _room(self) -> ReportBuffer:
        return ReportBuffer(self._store, systems.decode_waiting)
