"""What has happened so far: loads, decisions and what became of them, rounds, and whether the fleet is balanced.

Balanced means that trimtab itself finds nothing to do any more: at least one of its decisions was followed, and in
each of the last `CALM_ROUNDS` rounds nothing fired, no split was decided and no broker was as far from the mean as
the settings let brokers be from each other.

A split comes with the picture of its cuts in the topics as their broker reported them last, so the loads may differ a
little from those that the controller saw when it decided.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from deploy.local.demo.fleet import BrokerNow, Result, Sweep
from deploy.local.demo.topics import Closed, Decided, Received
from policies.columns import Floats
from policies.splitting.cut import BundleLimits, Cut, SplitQuestion, children, topic_loads
from policies.splitting.ranges import Bundle, positions_of
from policies.wording import counted
from state.events import Control
from state.outputs import RoundSummary, Split, Unload
from streaming.contract.messages import Traffic
from streaming.planner.split import Plan


def plan_cut(split: Split, topics: Mapping[str, Traffic], limits: BundleLimits) -> Plan:
    """The split as a plan over these topics of its bundle, for ``streaming.planner.split.draw`` to show."""
    bundle = Bundle.parse(split.bundle)
    loads = topic_loads(
        list(topics),
        positions=positions_of(topics),
        messages_per_s=_sums(topics, "msgRateIn", "msgRateOut"),
        bytes_per_s=_sums(topics, "msgThroughputIn", "msgThroughputOut"),
    )
    question = SplitQuestion(range=bundle.range, topics=loads, limits=limits)
    cut = Cut(boundaries=tuple(split.boundaries), reason=split.reason)
    return Plan(
        bundle=bundle,
        algorithm=split.algorithm,
        question=question,
        cut=cut,
        children=children(question, cut.boundaries),
        warnings=(),
    )


def _sums(topics: Mapping[str, Traffic], *rates: str) -> Floats:
    """The sum of these rates for each topic, (n,)."""
    return np.array([sum(getattr(traffic, rate) for rate in rates) for traffic in topics.values()])


_ACCEPTABLE = "pulsar.fleet_planner.acceptable_spread_points"
CALM_ROUNDS = 4
"""Long enough that a difference that persists would have been acted on."""
KEPT_DECISIONS = 200
KEPT_SPREADS = 1800
"""An hour of sweeps."""
LAGS_AVERAGED = 15

Fate = Literal["moving", "moved", "splitting", "split", "skipped", "failed", "dry-run"]


@dataclass(slots=True, kw_only=True)
class Decision:
    """An action and what became of it."""

    action_id: str
    action: Unload | Split
    heard_at: float
    """Unix time."""
    fate: Fate
    why: str = ""
    """Why it was skipped or failed."""
    plan: Plan | None = None
    """A split over the topics that its broker reported last, for a picture; None for an unload, or without such a report."""


@dataclass(slots=True, kw_only=True)
class Story:
    """Grows with every sweep and every record that is read. ``acceptable_points`` is how far apart brokers may be by the file.

    ``limits`` are what a bundle may carry before it is split.
    """

    acceptable_points: float
    limits: BundleLimits
    metrics_url: str
    command: str
    """What shows more in a second terminal, to be pasted there."""
    settings_file: str
    clock: Callable[[], float] = time.time
    bundles_count: int = 0
    """Bundles of the whole fleet in the last sweep."""
    first: dict[str, BrokerNow] = field(default_factory=dict)
    now: dict[str, BrokerNow] = field(default_factory=dict)
    spreads_points: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_SPREADS))
    """Usage of the hottest broker less that of the coldest, a value for each sweep."""
    first_spread_points: float = 0.0
    decisions: deque[Decision] = field(default_factory=lambda: deque(maxlen=KEPT_DECISIONS))
    decided_count: int = 0
    moved_count: int = 0
    split_count: int = 0
    rounds_count: int = 0
    last_round: RoundSummary | None = None
    lags_s: deque[float] = field(default_factory=lambda: deque(maxlen=LAGS_AVERAGED))
    calm_rounds_count: int = 0
    began_at: float = 0.0
    """Unix time of the first sweep."""
    happenings: list[str] = field(default_factory=list)
    """What was done to trimtab itself, and what followed."""
    controls: list[Control] = field(default_factory=list)
    """What people set from another terminal, in the order of the topic."""
    balanced_after_s: float | None = None
    """Seconds from the first sweep to the first moment it was balanced; None before that."""

    def observe(self, received: Received) -> None:
        """Take what became readable."""
        match received:
            case Closed():
                self._observe_round(received)
            case Decided():
                self._observe_decision(received)
            case Result():
                self._observe_result(received)
            case Sweep():
                self._observe_sweep(received)
            case Control():
                self.controls.append(received)

    def _observe_sweep(self, sweep: Sweep) -> None:
        self.bundles_count = sweep.bundles_count
        self.now = {broker.broker: broker for broker in sweep.brokers}
        usages = [broker.usage_points for broker in sweep.brokers]
        spread = max(usages) - min(usages)
        if not self.first:
            self.first, self.first_spread_points, self.began_at = self.now, spread, self.clock()
        self.spreads_points.append(spread)
        for result in sweep.finished:
            self._observe_result(result)

    def _observe_decision(self, received: Decided) -> None:
        self.decided_count += 1
        action = received.action
        plan = self._plan(action) if isinstance(action, Split) else None
        fate: Fate = "splitting" if isinstance(action, Split) else "moving"
        if action.dry_run:
            fate = "dry-run"
        self.decisions.append(
            Decision(action_id=received.action_id, action=action, heard_at=self.clock(), fate=fate, plan=plan)
        )

    def _observe_result(self, result: Result) -> None:
        decision = next((each for each in self.decisions if each.action_id == result.action_id), None)
        if decision is None:
            return
        decision.why = result.reason
        if result.outcome != "succeeded":
            decision.fate = result.outcome
        elif isinstance(decision.action, Split):
            decision.fate, self.split_count = "split", self.split_count + 1
        else:
            decision.fate, self.moved_count = "moved", self.moved_count + 1

    def _plan(self, split: Split) -> Plan | None:
        broker = self.now.get(split.broker)
        topics = None if broker is None else broker.topics.get(split.bundle)
        return None if topics is None else plan_cut(split, topics, self.limits)

    def _observe_round(self, received: Closed) -> None:
        self.rounds_count += 1
        self.last_round = received.summary
        self.lags_s.append(received.lag_s)
        self.calm_rounds_count = self.calm_rounds_count + 1 if self._is_calm(received.summary) else 0
        if self.is_balanced and self.balanced_after_s is None:
            self.balanced_after_s = self.clock() - self.began_at

    @property
    def is_balanced(self) -> bool:
        """Whether trimtab has finished its work; see the module."""
        return self.moved_count > 0 and self.calm_rounds_count >= CALM_ROUNDS

    @property
    def allowed_points(self) -> float:
        """How far apart brokers may be, by what people have set or by the file."""
        changed = {} if self.last_round is None else self.last_round.overlay_by_name()
        return float(changed.get(_ACCEPTABLE, self.acceptable_points))

    @property
    def lag_s(self) -> float | None:
        """Median seconds from a round's end to its decision being readable, over the last rounds; None before the first."""
        return statistics.median(self.lags_s) if self.lags_s else None

    def problems(self) -> list[str]:
        """Why the fleet does not count as balanced; empty if it does."""
        if self.is_balanced:
            return []
        if self.last_round is None:
            return ["no round was closed: trimtab has published no summary"]
        found = []
        if self.moved_count == 0:
            found.append(f"no unload was followed; {counted(self.decided_count, 'action')} decided")
        if self.calm_rounds_count < CALM_ROUNDS:
            found.append(
                f"only {counted(self.calm_rounds_count, 'calm round')} in a row, {CALM_ROUNDS} are needed: a broker is "
                f"{_farthest_points(self.last_round):.1f} points from the mean, {self.allowed_points:g} are allowed; "
                f"last round: {self.last_round.outcome}, {self.last_round.reason}"
            )
        return found

    def _is_calm(self, summary: RoundSummary) -> bool:
        fired_count = summary.examined.outcomes.get("fired", 0)
        splits_count = summary.splits.outcomes.get("acted", 0)
        within = _farthest_points(summary) < self.allowed_points
        return summary.outcome == "decided" and not fired_count and not splits_count and within


def _farthest_points(summary: RoundSummary) -> float:
    """How far the broker that is farthest from the mean usage is from it, of those that take part, by the figures of the summary."""
    if summary.usage is None:
        return 0.0
    mean = summary.usage.mean_points
    points = (abs(load.usage_points - mean) for load in summary.brokers if not load.excluded)
    return max(points, default=0.0)
