"""A throttle decision as an action: its numbers, and one sentence for a person."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import numpy as np

from policies.throttle.copies import DISK, KINDS, REASSIGNMENT, RECOVERY, Copies
from policies.throttle.lists import contains, lists_of
from policies.throttle.pacing_round import PacingExplanation, ThrottleDecision, Trigger
from policies.throttle.roles import BrokerRole, Role, brokers_of, of_role
from policies.wording import counted, duration, rate_text
from state.closing import Closing
from state.kafka.snapshot import Observation
from state.outputs import Throttle
from state.summary import join_names

NAME = "reassignment-throttle"
"""The policy's name."""
SUBJECT = "reassignments"
"""Subject of every throttle action: a cluster has one throttle."""

V = TypeVar("V")
_NAMES_SHOWN = 5
_BECAUSE: Mapping[Trigger, str] = {
    "first-throttle": "{what} {paced}, {parts}",
    "moves-joined": "more is copied than before, or will be, or a broker of it is back",
    "throttle-lost": "throttles that are still needed are not there",
    "minimum-rose": "a minimum came near the rate, and below it the copies would never end",
    "deadline-at-risk": "the deadline would be missed",
    "headroom": "the network has room for more",
    "over-cap": "the rates are above what the network or the cluster's limit allows",
    "traffic-fell": "what will be copied is written more slowly than before, and a lower rate is enough",
    "under-min-isr": "a partition has too few in-sync replicas to be written to, so that other copies make room",
    "reports-back": "the reports are back, so the rates need not be those for the worst case",
    "moves-left": "some copies are done or left",
    "stale-reports": "reports are missing, so the rates are set for whichever source leads",
    "finished": "nothing is left to pace, so what trimtab added comes off",
}


def throttle_action(
    decision: ThrottleDecision, explanation: PacingExplanation, observation: Observation, closing: Closing
) -> Throttle:
    """The action of a round."""
    copies = observation.copies
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
        disk_rate_bytes_per_s=_texts(decision.set_rates, "disk"),
        clear_disk_rates=brokers_of(decision.clear_rates, "disk"),
        leader_min_bytes_per_s=_texts(minimums, "leader"),
        follower_min_bytes_per_s=_texts(minimums, "follower"),
        disk_min_bytes_per_s=_texts(minimums, "disk"),
        copies=copies_by_kind(copies),
        eta_s=None if explanation.eta is None else explanation.eta.remaining_s,
        bottleneck=bottleneck(explanation),
        fingerprint=None if copies is None else copies.fingerprint(),
    )


def _reassignments(observation: Observation) -> str:
    """What must still be true of the cluster when the action is carried out."""
    if observation.copies is None:
        return "unknown"
    if not len(observation.copies):
        return "none"
    return "planned" if observation.is_planned else "running"


def copies_by_kind(copies: Copies | None) -> dict[str, int]:
    """Number of copies of each kind that there is."""
    if copies is None:
        return {}
    counts = np.bincount(copies.kind, minlength=len(KINDS)).tolist()
    return {kind: count for kind, count in zip(KINDS, counts, strict=True) if count}


def bottleneck(explanation: PacingExplanation) -> str | None:
    """The role that finishes last."""
    last = None if explanation.plan is None else explanation.plan.bottleneck
    return None if last is None else str(last)


def _texts(values: Mapping[BrokerRole, V], role: Role) -> dict[str, V]:
    return {str(broker): value for broker, value in of_role(values, role).items()}


def _reason(decision: ThrottleDecision, explanation: PacingExplanation, observation: Observation) -> str:
    takes = "would take" if observation.is_planned else "done in"
    what, parts = _describe(observation)
    paced = _describe_paced(decision, observation)
    because = _BECAUSE[decision.trigger].format(what=what, paced=paced, parts=parts)
    because = because[0].upper() + because[1:]
    uncounted = "".join(f" {each}." for each in left_out(explanation))
    if not decision.set_rates:
        return f"{because}.{uncounted}"
    lowest, highest = min(decision.set_rates.values()), max(decision.set_rates.values())
    rates = rate_text(lowest) if lowest == highest else f"{rate_text(lowest)} to {rate_text(highest)}"
    brokers = counted(len({role.broker for role in decision.set_rates}), "broker")
    roles = f"{counted(len(decision.set_rates), 'role')} of {brokers}"
    done = ""
    if explanation.eta is not None and explanation.eta.remaining_s is not None:
        last = bottleneck(explanation)
        done = f", {takes} {duration(explanation.eta.remaining_s)}" + (f", {last} last" if last else "")
    return f"{because}: {rates} for {roles}{done}.{uncounted}"


def _describe_paced(decision: ThrottleDecision, observation: Observation) -> str:
    """Whether lists and rates of somebody else pace what is copied already, and what becomes of their rates."""
    copies, there = observation.copies, observation.rates_there
    is_paced = (
        copies is not None
        and all(role in there for role in decision.set_rates)
        and contains(observation.lists, lists_of(copies))
    )
    if not is_paced:
        return "not paced yet"
    stay = all(there[role] == rate for role, rate in decision.set_rates.items())
    return f"paced already by a throttle that was set before, whose rates {'stay' if stay else 'change'}"


def _describe(observation: Observation) -> tuple[str, str]:
    """What is copied, as the subject of a sentence, and how much it is of each kind."""
    copies = observation.copies
    if copies is None or not (copies.kind != REASSIGNMENT).any():
        count = 0 if copies is None else len(copies)
        return f"what {'is planned to move' if observation.is_planned else 'moves'} is", counted(
            count, "partition"
        )
    moved = copies.of_kind(REASSIGNMENT)
    parts = [f"{counted(len(np.unique(moved.rows)), 'partition')} to reassign"] if len(moved.keys) else []
    for kind, to_do in ((RECOVERY, "to bring up to date"), (DISK, "to move between disks")):
        replicas = copies.of_kind(kind)
        if len(replicas.keys):
            brokers = join_names([f"{broker}" for broker in np.unique(replicas.brokers).tolist()])
            parts.append(f"{counted(len(replicas.keys), 'replica')} {to_do} on broker {brokers}")
    return f"what {'will be' if observation.is_planned else 'is'} copied is", " and ".join(parts)


def left_out(explanation: PacingExplanation) -> Iterator[str]:
    """Which partitions no minimum includes, and which get no throttle, each with the reason."""
    names = () if explanation.needs is None else explanation.needs.without_leader
    if names:
        until = "takes no quota until it has" if len(names) == 1 else "take no quota until they have"
        yield f"{join_names(names, _NAMES_SHOWN)} {until} a leader"
    if unfit := explanation.unfit:
        needs, it, ends = ("needs", "it", "it ends") if len(unfit) == 1 else ("need", "them", "they end")
        yield (
            f"{join_names(unfit, _NAMES_SHOWN)} {needs} more than a broker is declared to carry, so no throttle is set for {it}: none with "
            f"which {ends} would fit"
        )


def _evidence(
    decision: ThrottleDecision, explanation: PacingExplanation, observation: Observation
) -> dict[str, float | int | str]:
    """The numbers that the decision was made on; those that are not known are left out."""
    evidence: dict[str, float | int | str] = {
        "partitions_moving_count": 0 if observation.copies is None else len(observation.copies),
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
