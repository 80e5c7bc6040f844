"""The ledger of a cluster's decisions: one record of each, from the round that decided it to the verdict on its effect.

It answers all questions about earlier decisions: which bundles rest, what is in flight, which bundles are leaving their broker,
how many unloads the last hour saw, which children may appear, how the last actions ended.

Invariants: decisions stand in the order in which they were decided. A dry-run's decisions rest, leave and are counted like those
that act, so that a dry-run shows what would be done, but their effect is not looked for. A decision is kept for as long as one of
the questions may need it.
"""

import copy
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from policies.shedding.view import Promise, Side, Traffic
from policies.splitting.plan import BlindCut
from state.events import ActionOutcome
from state.guard_settings import JUDGED_ACTIONS_COUNT
from state.settings import PulsarSettings, to_ms

ActionKind = Literal["unload", "split"]
VerdictOutcome = Literal["effective", "failed", "ineffective"]

HOUR_MS = 3_600_000
UNREACHED_ROUNDS = 3
"""After so many rounds in a row whose unloads to a broker landed elsewhere, no others are sent there: one may be chance, or a restart."""


class Child(msgspec.Struct, frozen=True, array_like=True):
    """A bundle that a split makes."""

    bundle: str
    messages_ratio: float | None
    """Its share of the parent's message rate; None where the topics were not known."""
    bytes_ratio: float | None
    """Its share of the parent's throughput; None where the topics were not known."""
    blind_cut: BlindCut | None = None
    """The parent, where it was cut without knowing what its topics have of what is too much."""


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """How an action ended."""

    outcome: VerdictOutcome
    judged_ms: int
    broker: str
    """Owner of the bundle then; for a failed action, the owner when it was decided."""
    rounds_count: int
    """Rounds that saw no effect."""
    expected: dict[Side, Traffic] = {}
    """Load that the brokers of an unload should have had then."""
    seen: dict[Side, Traffic] = {}
    """Load that they reported then, so far as they had reported since the result."""
    is_listed: bool = False
    """Whether the summary of a round has listed it."""


class CheckedPromise(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of an unload's promise."""

    checked_ms: int
    promise: Promise


class Unanswered(msgspec.Struct, frozen=True, array_like=True):
    """Actions in a row that expired without a result."""

    had_effect: bool
    """Whether the reports show the effect of each of them all the same; else, of none."""
    count: int
    since_ms: int
    """When the first of them was decided."""


class Decision(msgspec.Struct, array_like=True):
    """A decided unload or split of one bundle."""

    id: str
    kind: ActionKind
    bundle: str
    source: str
    """Owner of the bundle when it was decided."""
    destination: str | None
    """Destination of an unload; None where Pulsar chooses."""
    children: tuple[Child, ...]
    """Children of a split."""
    decided_ms: int
    """End of the round that decided it."""
    expires_ms: int
    until_ms: int
    """From then on no result and no effect is expected, unless its result came in before."""
    dry_run: bool
    is_watched: bool
    """Whether its effect is still looked for."""
    is_leaving: bool
    """Whether the bundle has to leave its broker and may still be listed there."""
    is_resting: bool = True
    """Whether its bundles may still rest because of it: a cooldown that is over stays over, also when the setting grows."""
    result: ActionOutcome | None = None
    """Outcome in its newest result, but ``failed`` stays."""
    succeeded_ms: int | None = None
    """Time of the first ``succeeded`` result while its effect was looked for; None: there is nothing to judge yet."""
    rounds_count: int = 0
    """Rounds since then that saw no effect."""
    verdict: Verdict | None = None
    traffic: Traffic | None = None
    """Load of the bundle of an unload when it was decided."""
    before: dict[Side, Traffic] = {}
    """Load of its brokers then."""
    before_points: dict[Side, float] = {}
    """Usage of its brokers then."""
    promised_points: dict[Side, float] = {}
    """By how much their usage is to change."""
    promise: CheckedPromise | None = None
    """What became of that; None as long as it is not checked."""
    is_drain: bool = False
    """Whether it is an unload that empties its broker, which has a budget of its own."""
    is_counted: bool = False
    """Whether it counts no more as unanswered: the row of unanswered actions has it already, or a later action was answered."""

    @property
    def plan(self) -> tuple[object, ...]:
        """Round, source and destination; unloads that share all three are one plan. Its own id stands for a destination that is not known.

        Round and destination alone, ``plan[::2]``, gather the unloads of a round to one broker.
        """
        return (self.decided_ms, self.source, self.destination or self.id)

    def broker_of(self, side: Side) -> str | None:
        """A broker of an unload."""
        return self.source if side == "source" else self.destination

    @property
    def landed_elsewhere(self) -> bool:
        """Whether it moved its bundle to another broker than it was to."""
        if self.verdict is None or self.verdict.outcome != "effective" or self.destination is None:
            return False
        return self.verdict.broker not in ("", self.source, self.destination)

    def is_in_flight(self, end_ms: int) -> bool:
        """Whether it may still be carried out."""
        return self.result is None and end_ms < self.expires_ms

    def is_unanswered(self, end_ms: int) -> bool:
        """Whether it expired without a result, and it is not known yet whether it had an effect."""
        is_over = self.result is None and self.expires_ms <= end_ms < self.until_ms
        return is_over and not self.dry_run and not self.is_counted


@dataclass(frozen=True, slots=True)
class Resting:
    """Bundles that decisions of one kind keep from being touched."""

    in_flight: frozenset[str] = frozenset()
    cooling: frozenset[str] = frozenset()
    unconfirmed: frozenset[str] = frozenset()
    """Those of ``cooling`` whose action was skipped, or expired without a result."""
    shown: frozenset[str] = frozenset()
    """Those of ``cooling`` whose decision is a dry-run's."""


class Ledger(msgspec.Struct, array_like=True):
    """All decisions that something may still depend on, the oldest first."""

    decisions: list[Decision] = msgspec.field(default_factory=list)
    failing_since_ms: dict[ActionKind, int] = msgspec.field(default_factory=dict)
    """By kind, end of the round since which so many actions failed that no other is done until a person resumes."""
    unanswered: Unanswered | None = None
    """The last actions, if they expired without a result; also those of a Kafka cluster, whose decisions are not here."""

    def draft(self) -> "Ledger":
        """The same ledger, to be changed while this one stays."""
        return Ledger(
            decisions=[copy.copy(decision) for decision in self.decisions],
            failing_since_ms=dict(self.failing_since_ms),
            unanswered=self.unanswered,
        )

    def record(self, decisions: Sequence[Decision]) -> None:
        """Add the decisions of a round; an older unload of a bundle no longer says that the bundle leaves."""
        unloaded = {decision.bundle for decision in decisions if decision.kind == "unload"}
        for decision in self.decisions:
            decision.is_leaving = decision.is_leaving and decision.bundle not in unloaded
        self.decisions.extend(decisions)

    def apply_results(self, results: Iterable[tuple[str, ActionOutcome, int]]) -> None:
        """Note the results of executors, in the order of time: action id, outcome, time.

        A result ends the flight, a failed one the cooldown as well, and only a success leaves something to judge. It also shows that
        somebody obeyed up to its action, so no earlier one counts as unanswered.
        """
        by_id: dict[str, list[int]] = defaultdict(list)
        for place, decision in enumerate(self.decisions):
            by_id[decision.id].append(place)
        newest = -1
        for action_id, outcome, time_ms in results:
            for place in by_id.get(action_id, ()):
                _apply(self.decisions[place], outcome, time_ms)
                newest = max(newest, place)
        if newest >= 0:
            self.unanswered = None
        for decision in self.decisions[: newest + 1]:
            decision.is_counted = True

    def count_unanswered(self, *, decided_ms: int, had_effect: bool) -> None:
        """Count one more action that expired without a result, behind those that did so before it."""
        last = self.unanswered
        if last is None or last.had_effect != had_effect:
            last = Unanswered(had_effect, 0, decided_ms)
        self.unanswered = Unanswered(had_effect, last.count + 1, last.since_ms)

    def forget_dry_run(self) -> None:
        """The mode becomes ``act``: drop what the dry-run decided, which never happened; what was done before it is kept."""
        self.decisions = [decision for decision in self.decisions if not decision.dry_run]
        self.unanswered = None

    def resume(self, resumed_ms: int) -> None:
        """A person says that the cause of failures is mended: what was decided or judged up to then no longer counts.

        A second call with the same moment changes nothing, so that an event may be applied in every round it is in force.
        """
        for decision in self.decisions:
            if decision.verdict is None:
                decision.is_watched = decision.is_watched and decision.decided_ms > resumed_ms
            elif decision.verdict.judged_ms <= resumed_ms:
                decision.verdict = decision.promise = None
        self.failing_since_ms = {
            kind: since_ms for kind, since_ms in self.failing_since_ms.items() if since_ms > resumed_ms
        }
        if self.unanswered is not None and self.unanswered.since_ms <= resumed_ms:
            self.unanswered = None

    def forget_old(self, pulsar: PulsarSettings, *, end_ms: int) -> None:
        """Drop what no question needs any more."""
        for decision in self.decisions:
            decision.is_resting = decision.is_resting and end_ms < _rests_until_ms(decision, pulsar)
        kept = {
            id(decision)
            for kind in _KINDS
            for decision in (
                *self.judged(kind),
                *self._last_judged(kind, lambda decision: decision.plan[::2]),
            )
        }
        self.decisions = [
            decision
            for decision in self.decisions
            if id(decision) in kept or _is_needed(decision, pulsar, end_ms=end_ms)
        ]

    def resting(self, kind: ActionKind, pulsar: PulsarSettings, *, end_ms: int) -> Resting:
        """Bundles that rest because of their newest decision of a kind; a cooldown of 0 switches both off.

        The children of a split cool as it does, but they are not in flight: once they are listed, the split is done.
        """
        cooldown_ms = _cooldown_ms(kind, pulsar)
        newest: dict[str, tuple[Decision, bool]] = {}
        for decision in self.decisions if cooldown_ms else ():
            if decision.kind == kind and decision.is_resting:
                newest[decision.bundle] = (decision, True)
                newest |= {child.bundle: (decision, False) for child in decision.children}
        in_flight = frozenset(
            name for name, (decision, is_own) in newest.items() if is_own and decision.is_in_flight(end_ms)
        )
        cooling = frozenset(
            name
            for name, (decision, _) in newest.items()
            if decision.result != "failed" and end_ms < decision.decided_ms + cooldown_ms
        )
        return Resting(
            in_flight=in_flight,
            cooling=cooling,
            unconfirmed=frozenset(
                name
                for name in cooling - in_flight
                if (found := newest[name])[1] and not found[0].dry_run and found[0].result != "succeeded"
            ),
            shown=frozenset(name for name in cooling if newest[name][0].dry_run),
        )

    def ineffective(self, rest_s: float, *, end_ms: int) -> dict[str, Decision]:
        """By bundle, the newest action that had no effect, for as long as its bundle is left alone."""
        return {
            decision.bundle: decision
            for decision in self._judged_decisions()
            if decision.verdict
            and decision.verdict.outcome == "ineffective"
            and end_ms < decision.verdict.judged_ms + to_ms(rest_s)
        }

    def unloads_of_last_hour(self, *, is_drain: bool, end_ms: int) -> list[Decision]:
        """Unloads that the rounds that ended within the last hour decided, to empty brokers or else."""
        return [
            decision
            for decision in self.decisions
            if decision.kind == "unload"
            and decision.is_drain == is_drain
            and decision.decided_ms > end_ms - HOUR_MS
        ]

    def waiting_since_last_result(self, *, end_ms: int) -> list[Decision]:
        """Actions that may still be carried out, if all of them were decided after the newest one that has a result."""
        flying = [
            decision for decision in self.decisions if decision.is_in_flight(end_ms) and not decision.dry_run
        ]
        answered_ms = [decision.decided_ms for decision in self.decisions if decision.result is not None]
        is_answered = bool(flying) and flying[0].decided_ms <= max(answered_ms, default=-1)
        return [] if is_answered else flying

    def unloads_in_flight_count(self, *, end_ms: int) -> int:
        """How many unloads an executor may still have to carry out."""
        return sum(
            decision.kind == "unload" and not decision.dry_run and decision.is_in_flight(end_ms)
            for decision in self.decisions
        )

    def awaited_bundles(self, *, end_ms: int) -> frozenset[str]:
        """Bundles of actions that may still be carried out, or whose effect is looked for, whatever the cooldowns are."""
        return frozenset(
            decision.bundle
            for decision in self.decisions
            if decision.is_in_flight(end_ms) or (decision.is_watched and decision.succeeded_ms is not None)
        )

    def unloads_on_their_way(self) -> list[Decision]:
        """Unloads that do not show in the reports yet."""
        return [decision for decision in self.decisions if decision.is_leaving]

    def unloaded_ms(self, *, end_ms: int) -> dict[str, int]:
        """By broker, the end of the last round that decided an unload from it that was or may be carried out, or is a dry-run's."""
        return {
            decision.source: decision.decided_ms
            for decision in sorted(self.decisions, key=lambda decision: decision.decided_ms)
            if decision.kind == "unload"
            and (decision.dry_run or decision.result == "succeeded" or decision.is_in_flight(end_ms))
        }

    def _newest(self, kind: ActionKind) -> dict[str, Decision]:
        """By bundle, its newest decision of a kind."""
        return {decision.bundle: decision for decision in self.decisions if decision.kind == kind}

    def expected_children(self, *, end_ms: int) -> Iterator[tuple[str, Sequence[Child]]]:
        """Split bundles whose children may appear for the first time, with what is known of the children."""
        newest = self._newest("split")
        for name, decision in newest.items():
            if end_ms < decision.until_ms:
                yield name, decision.children

    def splits_on_their_way(self, *, end_ms: int) -> list[Decision]:
        """Splits that may still show in the reports: nothing says that they did, that they failed, or that they had no effect."""
        newest = self._newest("split")
        return [
            decision
            for decision in newest.values()
            if decision.verdict is None
            and decision.result in (None, "succeeded")
            and (end_ms < decision.until_ms or decision.is_watched)
        ]

    def unsettled_brokers(self, *, end_ms: int) -> frozenset[str]:
        """Brokers of unloads that are being carried out, or do not show in the reports yet, or show only since this round."""
        newest = self._newest("unload")
        brokers: set[str | None] = set()
        for decision in self.decisions:
            shows_now = (
                decision.verdict
                and decision.verdict.outcome == "effective"
                and decision.verdict.judged_ms == end_ms
            )
            awaited = decision.is_watched and (
                decision.succeeded_ms is not None
                or (newest.get(decision.bundle) is decision and decision.is_in_flight(end_ms))
            )
            if decision.kind == "unload" and (shows_now or awaited):
                brokers |= {decision.source, decision.destination}
        return frozenset(name for name in brokers if name is not None)

    def unreached_brokers(self, *, end_ms: int) -> frozenset[str]:
        """Destinations that ``UNREACHED_ROUNDS`` rounds in a row within the hour did not reach: most of their unloads landed elsewhere."""
        plans: dict[str, dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
        for decision in self.decisions:
            if decision.verdict and decision.destination and decision.decided_ms > end_ms - HOUR_MS:
                plans[decision.destination][decision.decided_ms].append(decision.landed_elsewhere)
        return frozenset(
            broker
            for broker, rounds in plans.items()
            if len(rounds) >= UNREACHED_ROUNDS
            and all(2 * sum(rounds[at]) > len(rounds[at]) for at in sorted(rounds)[-UNREACHED_ROUNDS:])
        )

    def expected_traffic(self, decision: Decision) -> dict[Side, Traffic]:
        """Load its brokers should have by now: what it was at the decision, changed by the unloads carried out since then."""
        moves = self._carried_out_since(decision)
        return {
            side: _moved(before, decision.broker_of(side), moves) for side, before in decision.before.items()
        }

    def expected_points(self, decision: Decision) -> dict[Side, float]:
        """Usage its brokers should have by now: what it was at the decision, changed by the promises of unloads carried out since."""
        moves = self._carried_out_since(decision)
        return {
            side: max(0.0, points + _promised_to(decision.broker_of(side), moves))
            for side, points in decision.before_points.items()
        }

    def last_promises(self, *, end_ms: int) -> list[Promise]:
        """Promises checked within the hour, of the last judged unloads, the oldest first."""
        return [
            decision.promise.promise
            for decision in self.judged("unload")
            if decision.promise and decision.promise.checked_ms > end_ms - HOUR_MS
        ]

    def _carried_out_since(self, decision: Decision) -> list[Decision]:
        return [
            later
            for later in self.decisions
            if later.result == "succeeded" and later.decided_ms >= decision.decided_ms and not later.dry_run
        ]

    def list_verdicts(self) -> list[Decision]:
        """Decisions judged since the last call, the oldest verdict first."""
        unlisted = [
            decision
            for decision in self._judged_decisions()
            if decision.verdict and not decision.verdict.is_listed
        ]
        for decision in unlisted:
            decision.verdict = decision.verdict and msgspec.structs.replace(decision.verdict, is_listed=True)
        return unlisted

    def judged(self, kind: ActionKind | None = None) -> list[Decision]:
        """The last judged actions, of one kind or of both, at most ten of each kind, the oldest first.

        The unloads that one round moved from one broker to another count as one action: a plan may have many small moves. It ended
        as most of them did, and one of them stands for all, that with the checked promise if there is one.
        """
        if kind is None:
            return sorted((decision for one in _KINDS for decision in self.judged(one)), key=_judged_ms)
        return self._last_judged(kind, lambda decision: decision.plan)

    def failures_count(self, kind: ActionKind) -> int:
        """How many of the last ten actions failed or had no effect; the unloads of a round to one broker count as one."""
        return sum(_is_bad(action) for action in self._last_judged(kind, lambda decision: decision.plan[::2]))

    def _last_judged(
        self, kind: ActionKind, plan_of: Callable[[Decision], tuple[object, ...]]
    ) -> list[Decision]:
        plans: dict[tuple[object, ...], list[Decision]] = defaultdict(list)
        for decision in self._judged_decisions():
            if decision.kind == kind:
                plans[plan_of(decision)].append(decision)
        return sorted(map(_representative, plans.values()), key=_judged_ms)[-JUDGED_ACTIONS_COUNT:]

    def outcome_counts(self) -> dict[str, int]:
        """How the last judged actions of both kinds ended."""
        last = [action.verdict.outcome for action in self.judged() if action.verdict][-JUDGED_ACTIONS_COUNT:]
        return dict(sorted(Counter(last).items()))

    def _judged_decisions(self) -> Sequence[Decision]:
        return sorted((decision for decision in self.decisions if decision.verdict), key=_judged_ms)


_KINDS: tuple[ActionKind, ...] = ("unload", "split")


def _is_bad(decision: Decision) -> bool:
    return decision.verdict is not None and decision.verdict.outcome != "effective"


def _representative(plan: Sequence[Decision]) -> Decision:
    """The action that stands for those of a plan: of the outcome of most, bad if as many are effective."""
    bad = [decision for decision in plan if _is_bad(decision)]
    if 2 * len(bad) >= len(plan):
        return bad[-1]
    return max(
        (decision for decision in plan if not _is_bad(decision)),
        key=lambda decision: decision.promise is not None,
    )


def _judged_ms(decision: Decision) -> int:
    return decision.verdict.judged_ms if decision.verdict else 0


def _moved(before: Traffic, broker: str | None, moves: Iterable[Decision]) -> Traffic:
    messages_per_s, bytes_per_s = before
    for move in moves:
        if move.traffic is not None:
            sign = (move.destination == broker) - (move.source == broker)
            messages_per_s += sign * move.traffic.messages_per_s
            bytes_per_s += sign * move.traffic.bytes_per_s
    return Traffic(max(0.0, messages_per_s), max(0.0, bytes_per_s))


def _promised_to(broker: str | None, moves: Iterable[Decision]) -> float:
    return math.fsum(
        points
        for move in moves
        for side, points in move.promised_points.items()
        if move.broker_of(side) == broker
    )


def _apply(decision: Decision, outcome: ActionOutcome, time_ms: int) -> None:
    decision.result = "failed" if decision.result == "failed" else outcome
    if outcome != "succeeded":
        decision.is_leaving = False
    if not decision.is_watched or decision.succeeded_ms is not None:
        return
    if outcome == "succeeded":
        decision.succeeded_ms = time_ms
    elif outcome == "failed":
        end_watch(decision, Verdict("failed", time_ms, decision.source, 0))


def end_watch(decision: Decision, verdict: Verdict) -> None:
    """End the watch: it is known what effect the decision had, or that it had none."""
    decision.verdict, decision.is_watched = verdict, False
    if verdict.outcome != "effective":
        decision.is_leaving = False


def _cooldown_ms(kind: ActionKind, pulsar: PulsarSettings) -> int:
    owner = pulsar.guards if kind == "unload" else pulsar.split
    return to_ms(owner.bundle_cooldown_s)


def _rests_until_ms(decision: Decision, pulsar: PulsarSettings) -> int:
    return max(decision.expires_ms, decision.decided_ms + _cooldown_ms(decision.kind, pulsar))


def _is_needed(decision: Decision, pulsar: PulsarSettings, *, end_ms: int) -> bool:
    last_ms = decision.decided_ms + HOUR_MS if decision.kind == "unload" else decision.until_ms
    if decision.verdict is not None and decision.verdict.outcome == "ineffective":
        last_ms = max(last_ms, decision.verdict.judged_ms + to_ms(pulsar.guards.ineffective_rest_s))
    return end_ms < last_ms or decision.is_resting or decision.is_watched or decision.is_leaving
