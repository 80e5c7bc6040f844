"""Whether the actions of some days helped: their gain, and what was held back, from the round summaries.

The summary of the round that judged an action holds what was expected and what was seen of it. Only sums are kept, however long the time.
A cluster counts as unbalanced while two brokers of a group are more than ``unbalanced_points`` apart; where a summary does not name all
brokers, while the hottest is that much above the mean.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from state.outputs import BrokerLoad, JudgedRow, PromisesSummary, UsageSummary
from state.outputs.types import ROUND_TYPE
from streaming.contract.envelope import ReadEnvelope
from streaming.operators.action_events import UnreadableEvent

_SHOWN_ACTIONS = 20
_NOT_HELD = frozenset({"acted"})
_HOUR_MS = 3_600_000


class _Outcomes(msgspec.Struct, frozen=True):
    """The counts of a section; its rows are not read."""

    outcomes: dict[str, int] = {}


class _Judged(msgspec.Struct, frozen=True):
    outcomes: dict[str, int] = {}
    heaviest: list[JudgedRow] = []


class _Round(msgspec.Struct, frozen=True, kw_only=True):
    """What a report reads of a summary; one of an older version may lack some fields."""

    start: str
    end: str
    outcome: str
    mode: str
    paused: bool = False
    brokers_reporting_count: int = 0
    usage: UsageSummary | None = None
    brokers: list[BrokerLoad] = []
    candidates: _Outcomes = _Outcomes()
    splits: _Outcomes = _Outcomes()
    judged: _Judged | None = None
    promises: PromisesSummary | None = None
    findings: _Outcomes = _Outcomes()
    actions_count: int = 0


_rounds = msgspec.json.Decoder(ReadEnvelope[_Round])


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A judged action that did not help."""

    id: str
    kind: str
    bundle: str
    outcome: str
    """`failed` or `ineffective`."""
    source: str | None
    destination: str | None
    judged_at: str
    """End of the round that judged it."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A round, for the plot."""

    end_ms: int
    max_points: float
    mean_points: float
    actions_count: int


@dataclass(slots=True)
class _Gains:
    """Sums over the unloads whose move has settled."""

    kept_count: int = 0
    failed_count: int = 0
    expected_points: float = 0.0
    seen_points: float = 0.0

    def add(self, promises: PromisesSummary) -> None:
        outcomes = promises.checked.outcomes
        self.kept_count += outcomes.get("kept", 0)
        self.failed_count += outcomes.get("failed", 0)
        for row in promises.checked.heaviest:
            before, expected = max(row.before_points.values()), max(row.expected_points.values())
            self.expected_points += before - expected
            self.seen_points += before - max(row.seen_points.values())


@dataclass(slots=True)
class ClusterReport:
    """Sums over the rounds of a cluster."""

    cluster: str
    first: str = ""
    """Start of the first round."""
    last: str = ""
    """End of the last round."""
    rounds: Counter[str] = field(default_factory=Counter)
    """How many rounds had each outcome."""
    modes: Counter[str] = field(default_factory=Counter)
    paused_count: int = 0
    actions_count: int = 0
    judged: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many actions were judged, by kind and outcome."""
    held: Counter[str] = field(default_factory=Counter)
    """Bundles that were not moved or cut, counted once a round, by the reason."""
    findings: Counter[str] = field(default_factory=Counter)
    unbalanced_ms: int = 0
    observed_ms: int = 0
    """Length of the rounds that say how loaded brokers are."""
    gains: _Gains = field(default_factory=_Gains)
    without_effect: list[Tried] = field(default_factory=list)
    """The newest actions that did not help."""
    moments: list[Moment] = field(default_factory=list)

    def add(self, found: _Round, *, unbalanced_points: float) -> None:
        """Take a round into account, in the order of time."""
        self.first = self.first or found.start
        self.last = found.end
        self.rounds[found.outcome] += 1
        self.modes[found.mode] += 1
        self.paused_count += found.paused
        self.actions_count += found.actions_count
        for section in (found.candidates, found.splits):
            self.held.update(
                {name: count for name, count in section.outcomes.items() if name not in _NOT_HELD}
            )
        self.findings.update(found.findings.outcomes)
        if found.promises is not None:
            self.gains.add(found.promises)
        if found.judged is not None:
            self._judge(found.judged, found.end)
        if found.usage is not None:
            self._observe(found, found.usage, unbalanced_points)

    def _judge(self, judged: _Judged, end: str) -> None:
        for row in judged.heaviest:
            self.judged[row.kind, row.outcome] += 1
            if row.outcome != "good":
                tried = Tried(
                    id=row.id,
                    kind=row.kind,
                    bundle=row.bundle,
                    outcome=row.outcome,
                    source=row.brokers.get("source"),
                    destination=row.brokers.get("destination"),
                    judged_at=end,
                )
                self.without_effect = [*self.without_effect, tried][-_SHOWN_ACTIONS:]

    def _observe(self, found: _Round, usage: UsageSummary, unbalanced_points: float) -> None:
        start_ms, end_ms = _ms(found.start), _ms(found.end)
        self.observed_ms += end_ms - start_ms
        if _spread_points(found, usage) > unbalanced_points:
            self.unbalanced_ms += end_ms - start_ms
        self.moments.append(
            Moment(
                end_ms=end_ms,
                max_points=usage.max_points,
                mean_points=usage.mean_points,
                actions_count=found.actions_count,
            )
        )

    def tree(self) -> dict[str, Any]:
        """Plain values for a program."""
        gains = self.gains
        count = gains.kept_count + gains.failed_count
        return {
            "cluster": self.cluster,
            "first_round_start": self.first,
            "last_round_end": self.last,
            "rounds": dict(sorted(self.rounds.items())),
            "modes": dict(sorted(self.modes.items())),
            "paused_rounds_count": self.paused_count,
            "actions_count": self.actions_count,
            "judged": [
                {"kind": kind, "outcome": outcome, "count": number}
                for (kind, outcome), number in sorted(self.judged.items())
            ],
            "promises": {
                "kept_count": gains.kept_count,
                "failed_count": gains.failed_count,
                "expected_gain_points": round(gains.expected_points / count, 2) if count else None,
                "gain_points": round(gains.seen_points / count, 2) if count else None,
            },
            "observed_hours": round(self.observed_ms / _HOUR_MS, 3),
            "unbalanced_hours": round(self.unbalanced_ms / _HOUR_MS, 3),
            "held_back": dict(self.held.most_common()),
            "findings": dict(self.findings.most_common()),
            "without_effect": msgspec.to_builtins(self.without_effect[::-1]),
        }


class Report:
    """Reads summaries one by one; those of a controller that another one has replaced do not count."""

    def __init__(self, *, unbalanced_points: float) -> None:
        self._unbalanced_points = unbalanced_points
        self._clusters: dict[str, ClusterReport] = {}
        self._epochs: dict[tuple[str, str], int] = {}

    def take(self, value: bytes, epoch: int) -> None:
        """Read a record of the audit topic that holds a summary. Raises ``UnreadableEvent`` for any other record."""
        try:
            found = _rounds.decode(value)
        except msgspec.MsgspecError as error:
            raise UnreadableEvent(
                f"not a {ROUND_TYPE}: {error}; it may be from another version of trimtab"
            ) from error
        key = (found.source, found.cluster)
        if epoch < self._epochs.get(key, 0):
            return
        self._epochs[key] = epoch
        cluster = self._clusters.setdefault(found.cluster, ClusterReport(found.cluster))
        cluster.add(found.data, unbalanced_points=self._unbalanced_points)

    def clusters(self) -> list[ClusterReport]:
        """The clusters, by name."""
        return [each for _, each in sorted(self._clusters.items())]


def _spread_points(found: _Round, usage: UsageSummary) -> float:
    if len(found.brokers) < found.brokers_reporting_count:
        return usage.max_points - usage.mean_points
    groups: dict[str | None, list[float]] = {}
    for each in found.brokers:
        if not each.excluded:
            groups.setdefault(each.group, []).append(each.usage_points)
    return max((max(points) - min(points) for points in groups.values()), default=0.0)


def _ms(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)
