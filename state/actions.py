"""From a policy's plan to the round's actions: budgets, evidence, expected load, one sentence of reason."""

from collections.abc import Collection
from dataclasses import dataclass, field

from policies.shedding.plan import NOBODY, SheddingPlan
from policies.snapshot import Snapshot
from policies.usage import Floats
from state.guards import Budget, Hold, quiet
from state.outputs import Unload, rfc3339
from state.tables import Eligible, mean_points


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What every action of a round shares."""

    cluster: str
    number: int
    end_ms: int
    expires_ms: int
    policy: str
    dry_run: bool
    paused: bool


@dataclass(slots=True)
class Admitted:
    """Actions of a round in the policy's order, and why the other wanted ones were held (by bundle row)."""

    unloads: list[Unload] = field(default_factory=list)
    holds: dict[int, Hold] = field(default_factory=dict)


def admit(
    eligible: Eligible,
    plan: SheddingPlan,
    budget: Budget,
    circumstances: Circumstances,
    *,
    split_rows: Collection[int],
) -> Admitted:
    """Spend the budgets on the plan, in its order; ``split_rows`` are bundles that are split in this round."""
    admitted = Admitted()
    snapshot = eligible.snapshot
    general = _general_hold(budget, circumstances)
    after = _Loads(snapshot)
    for row, destination, by in zip(
        plan.unload_rows.tolist(),
        plan.unload_destinations.tolist(),
        plan.unload_examined.tolist(),
        strict=True,
    ):
        source = int(plan.examined.high[by])
        hold = general or _hold(eligible, budget, split_rows, row=row, source=source)
        if hold is not None:
            admitted.holds[row] = hold
            continue
        expected = after.move(row, source=source, destination=destination)
        admitted.unloads.append(
            _unload(
                snapshot,
                plan,
                circumstances,
                expected,
                row=row,
                by=by,
                source=source,
                destination=destination,
            )
        )
    return admitted


def _general_hold(budget: Budget, circumstances: Circumstances) -> Hold | None:
    """Why nothing is moved in this round, if so."""
    if circumstances.paused:
        return Hold("paused", "the cluster is paused")
    return quiet(budget.guards, "unloads", end_ms=circumstances.end_ms)


def _hold(
    eligible: Eligible, budget: Budget, split_rows: Collection[int], *, row: int, source: int
) -> Hold | None:
    if row in split_rows:
        return Hold("split-instead", "it is too big for any other broker and is split in this round")
    return budget.take(
        eligible.snapshot.bundles.names[row],
        broker=eligible.snapshot.brokers.names[source],
        owned_count=int(eligible.owned_counts[source]),
    )


class _Loads:
    """Traffic of each broker as the round's actions move it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._messages: Floats = snapshot.brokers.messages_per_s.copy()
        self._volume: Floats = snapshot.brokers.bytes_per_s.copy()

    def move(self, row: int, *, source: int, destination: int) -> dict[str, dict[str, float]]:
        bundles = self._snapshot.bundles
        messages, volume = bundles.messages_per_s[row], bundles.bytes_per_s[row]
        self._add(source, -messages, -volume)
        expected = {"source": self._load(source)}
        if destination != NOBODY:
            self._add(destination, messages, volume)
            expected["destination"] = self._load(destination)
        return expected

    def _add(self, broker: int, messages_per_s: float, bytes_per_s: float) -> None:
        self._messages[broker] = max(0.0, self._messages[broker] + messages_per_s)
        self._volume[broker] = max(0.0, self._volume[broker] + bytes_per_s)

    def _load(self, broker: int) -> dict[str, float]:
        return {
            "messages_per_s": float(self._messages[broker]),
            "bytes_per_s": float(self._volume[broker]),
        }


def _unload(
    snapshot: Snapshot,
    plan: SheddingPlan,
    circumstances: Circumstances,
    expected: dict[str, dict[str, float]],
    *,
    row: int,
    by: int,
    source: int,
    destination: int,
) -> Unload:
    bundle, owner = snapshot.bundles.names[row], snapshot.brokers.names[source]
    evidence = _evidence(snapshot, plan, row=row, by=by)
    target = None if destination == NOBODY else snapshot.brokers.names[destination]
    return Unload(
        cluster=circumstances.cluster,
        round=circumstances.number,
        policy=circumstances.policy,
        trigger=plan.examined.trigger_of(by),
        reason=_reason(bundle, owner, target, evidence),
        evidence=evidence,
        expected=expected,
        precondition={"owner": owner, "range": bundle.rpartition("/")[2]},
        expires_at=rfc3339(circumstances.expires_ms),
        dry_run=circumstances.dry_run,
        bundle=bundle,
        source_broker=owner,
        destination_broker=target,
    )


def _evidence(snapshot: Snapshot, plan: SheddingPlan, *, row: int, by: int) -> dict[str, float | int | str]:
    bundles = snapshot.bundles
    return {
        **plan.examined.evidence_of(by),
        "bundle_messages_per_s": float(bundles.messages_per_s[row]),
        "bundle_bytes_per_s": float(bundles.bytes_per_s[row]),
        "brokers_count": len(snapshot.brokers),
        "mean_usage_points": mean_points(100.0 * snapshot.brokers.usage_ratio),
    }


def _reason(bundle: str, source: str, destination: str | None, evidence: dict[str, float | int | str]) -> str:
    moved = f"moving {bundle} ({_amount(evidence)})"
    threshold = evidence["threshold_points"]
    if destination is not None:
        return (
            f"{source} is at {evidence['high_usage_points']:.1f} % and {destination} at "
            f"{evidence['low_usage_points']:.1f} %, {evidence['difference_points']:.1f} points apart with "
            f"{threshold:g} allowed, found {evidence['hit_count']} times ({evidence['needed_hit_count']} needed): {moved}"
        )
    return (
        f"{source} is at {evidence['history_points']:.1f} % over time ({evidence['usage_points']:.1f} % now) and the "
        f"mean is {evidence['mean_points']:.1f} %, with {threshold:g} points allowed: {moved}"
    )


def _amount(evidence: dict[str, float | int | str]) -> str:
    return f"{evidence['bundle_messages_per_s']:.0f} messages/s, {evidence['bundle_bytes_per_s']:.0f} bytes/s"
