"""A throttle decision as an action: its numbers, and one sentence for a person."""

from collections.abc import Mapping
from typing import TypeVar

from policies.throttle.pacing_round import PacingExplanation, ThrottleDecision, Trigger
from policies.throttle.roles import BrokerRole, Role, brokers_of, of_role
from policies.wording import counted
from state.closing import Closing
from state.kafka.snapshot import Observation
from state.outputs import Throttle

NAME = "reassignment-throttle"
"""The policy's name."""
SUBJECT = "reassignments"
"""Subject of every throttle action: a cluster has one throttle."""

V = TypeVar("V")
_NAMES_SHOWN = 5
_BECAUSE: Mapping[Trigger, str] = {
    "first-throttle": "what {moves} is not paced yet, {moving}",
    "moves-joined": "partitions joined the move, or a broker of it is back",
    "throttle-lost": "throttles that are still needed are not there",
    "minimum-rose": "a minimum came near the rate, and below it the move would never end",
    "deadline-at-risk": "the deadline would be missed",
    "headroom": "the network has room for more",
    "over-cap": "the network's cap has come down",
    "reports-back": "the reports are back, so the rates need not be those for the worst case",
    "moves-left": "some partitions do not move any more",
    "stale-reports": "reports are missing, so the rates are set for whichever source leads",
    "finished": "nothing moves any more, so exactly what was added is removed",
}


def throttle_action(
    decision: ThrottleDecision, explanation: PacingExplanation, observation: Observation, closing: Closing
) -> Throttle:
    """The action of a round."""
    moves = observation.moves
    minimums = {} if explanation.needs is None else explanation.needs.min_bytes_per_s
    return Throttle(
        cluster=closing.cluster,
        round=closing.number,
        policy=NAME,
        trigger=decision.trigger,
        reason=_reason(decision, explanation, observation),
        evidence=_evidence(decision, explanation, observation),
        expected=_expected(explanation),
        precondition={"reassignments": _reassignments(observation)},
        expires_at=closing.expires_at,
        dry_run=closing.is_dry_run,
        add_leader_throttled_replicas=dict(decision.add.leader),
        add_follower_throttled_replicas=dict(decision.add.follower),
        remove_leader_throttled_replicas=dict(decision.remove.leader),
        remove_follower_throttled_replicas=dict(decision.remove.follower),
        leader_rate_bytes_per_s=_texts(decision.set_rates, "leader"),
        follower_rate_bytes_per_s=_texts(decision.set_rates, "follower"),
        clear_leader_rates=brokers_of(decision.clear_rates, "leader"),
        clear_follower_rates=brokers_of(decision.clear_rates, "follower"),
        leader_min_bytes_per_s=_texts(minimums, "leader"),
        follower_min_bytes_per_s=_texts(minimums, "follower"),
        eta_s=None if explanation.eta is None else explanation.eta.remaining_s,
        bottleneck=bottleneck(explanation),
        fingerprint=None if moves is None or not len(moves) else moves.fingerprint(),
    )


def _reassignments(observation: Observation) -> str:
    """What must still be true of the cluster's reassignments when the action is carried out."""
    if observation.moves is None:
        return "unknown"
    if not len(observation.moves):
        return "none"
    return "planned" if observation.is_planned else "running"


def bottleneck(explanation: PacingExplanation) -> str | None:
    """The role that finishes last."""
    last = None if explanation.plan is None else explanation.plan.bottleneck
    return None if last is None else str(last)


def _texts(values: Mapping[BrokerRole, V], role: Role) -> dict[str, V]:
    return {str(broker): value for broker, value in of_role(values, role).items()}


def _reason(decision: ThrottleDecision, explanation: PacingExplanation, observation: Observation) -> str:
    moving = 0 if observation.moves is None else len(observation.moves)
    moves, takes = ("is planned to move", "would take") if observation.is_planned else ("moves", "done in")
    because = _BECAUSE[decision.trigger].format(moves=moves, moving=counted(moving, "partition"))
    because = because[0].upper() + because[1:]
    uncounted = "" if (names := leaderless(explanation)) is None else f" {names}."
    if not decision.set_rates:
        return f"{because}.{uncounted}"
    lowest, highest = min(decision.set_rates.values()), max(decision.set_rates.values())
    rates = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
    brokers = counted(len({role.broker for role in decision.set_rates}), "broker")
    roles = f"{counted(len(decision.set_rates), 'role')} of {brokers}"
    done = ""
    if explanation.eta is not None and explanation.eta.remaining_s is not None:
        last = bottleneck(explanation)
        done = f", {takes} {explanation.eta.remaining_s:.0f} s" + (f", {last} last" if last else "")
    return f"{because}: {rates} bytes/s for {roles}{done}.{uncounted}"


def leaderless(explanation: PacingExplanation) -> str | None:
    """Which partitions no minimum includes, and why; None if all are included."""
    names = () if explanation.needs is None else explanation.needs.without_leader
    if not names:
        return None
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    until = "takes no quota until it has" if len(names) == 1 else "take no quota until they have"
    return f"{', '.join(names[:_NAMES_SHOWN])}{more} {until} a leader"


def _evidence(
    decision: ThrottleDecision, explanation: PacingExplanation, observation: Observation
) -> dict[str, float | int | str]:
    """The numbers that the decision was made on; those that are not known are left out."""
    evidence: dict[str, float | int | str] = {
        "partitions_moving_count": 0 if observation.moves is None else len(observation.moves),
        "brokers_reporting_count": len(observation.brokers),
    }
    needs = explanation.needs
    if needs is not None:
        known = [rate for rate in needs.min_bytes_per_s.values() if rate is not None]
        if known:
            evidence["largest_min_bytes_per_s"] = max(known)
        if needs.total_bytes_left is not None:
            evidence["bytes_left"] = needs.total_bytes_left
    if decision.set_rates:
        evidence["lowest_rate_bytes_per_s"] = min(decision.set_rates.values())
    if explanation.eta is not None:
        evidence["eta_basis"] = explanation.eta.basis
    return evidence


def _expected(explanation: PacingExplanation) -> dict[str, dict[str, float]]:
    """By role, the bytes left and the seconds until it finishes; a role for which one of them is not known is left out."""
    plan, needs = explanation.plan, explanation.needs
    if plan is None or needs is None:
        return {}
    return {
        str(role): {"bytes_left": float(size), "duration_s": seconds}
        for role, seconds in plan.durations_s.items()
        if seconds is not None and (size := needs.bytes_left.get(role)) is not None
    }
