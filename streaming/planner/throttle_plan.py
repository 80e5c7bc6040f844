"""A throttle worked out for a person or a program: lists, minimums and two plans, as JSON and as text.

``policies.throttle`` decides; this only puts it together. Reads and writes no file and no cluster. The text says what to set, what
each broker has to do, and when the move is done at each of the rates.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.throttle.batches import BatchPlan
from policies.throttle.checked_copies import Reassignment
from policies.throttle.copies import Copies
from policies.throttle.lists import ThrottledLists, lists_of
from policies.throttle.needs import ByRole, Needs, known_needs_of, needs_of, partitions_of
from policies.throttle.rates import (
    Load,
    RatePlan,
    RateRule,
    UniformPlan,
    Violation,
    least_time_s,
    loads_of,
    per_broker_plan,
    uniform_plan,
)
from policies.throttle.roles import BrokerRole, Role, of_role
from policies.wording import bytes_text, counted, duration, rate_text
from streaming.planner.throttle_request import Checked, NotPlanned, show


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThrottlePlan:
    """Everything that was worked out for a request."""

    reassignment: Reassignment
    not_planned: tuple[NotPlanned, ...]
    """Partitions that are left out, with the reason."""
    rule: RateRule
    lists: ThrottledLists
    needs: Needs
    loads: tuple[Load, ...]
    uniform: UniformPlan
    per_broker: RatePlan
    batches: BatchPlan | None
    late: tuple[str, ...]
    """A sentence for each of the two plans that misses the deadline, or one for the batches if there are some."""
    warnings: tuple[str, ...]
    is_doubted: bool
    """Whether something may be copied that the request does not say."""

    @property
    def is_infeasible(self) -> bool:
        """Whether one of the two plans can never finish, and there are no batches that do."""
        if self.has_batches_that_end:
            return False
        return self.uniform.plan.feasible is False or self.per_broker.feasible is False

    @property
    def without_rate(self) -> str:
        """The partitions whose write rate is unknown."""
        return show(lack.partition for lack in self.needs.lacking if "write_bytes_per_s" in lack.lacks)

    @property
    def has_batches_that_end(self) -> bool:
        """Whether there are batches, and each ends."""
        return self.batches is not None and self.batches.ends


def make_plan(checked: Checked, rule: RateRule, *, batches: BatchPlan | None = None) -> ThrottlePlan:
    """Work out the plan of what can be planned."""
    reassignment = checked.reassignment
    needs = needs_of(reassignment.copies, disk_threads=checked.disk_threads)
    loads = loads_of(needs, known_needs_of(reassignment.copies, disk_threads=checked.disk_threads))
    uniform, per_broker = uniform_plan(loads, rule), per_broker_plan(loads, rule)
    plans = {"uniform": uniform.plan, "per broker": per_broker}
    takes_s = {
        f"{title} takes{' at least' * (found.total_s is None)}": least_time_s(found.rates, loads)
        for title, found in plans.items()
    }
    if batches is not None:
        takes_s = {"one batch after the other takes": batches.total_s}
    late = tuple(_describe_late(takes_s, rule))
    return ThrottlePlan(
        reassignment=reassignment,
        not_planned=checked.not_planned,
        rule=rule,
        lists=lists_of(reassignment.copies),
        needs=needs,
        loads=loads,
        uniform=uniform,
        per_broker=per_broker,
        batches=batches,
        late=late,
        is_doubted=bool(checked.perhaps_running),
        warnings=(*checked.notes, *_warnings(checked, needs, rule), *_describe_doubt(batches, rule), *late),
    )


def _describe_doubt(batches: BatchPlan | None, rule: RateRule) -> Iterator[str]:
    if batches is None or rule.deadline_s is None:
        return
    if rule.is_in_time(batches.total_s, ends=batches.ends) is None:
        yield (
            "it is unknown whether all batches together keep the deadline, because it is not known how much some have to copy: the "
            "others are planned as if each had all of that time"
        )


def _describe_late(takes_s: Mapping[str, float | None], rule: RateRule) -> Iterator[str]:
    for what, seconds in takes_s.items():
        if rule.is_in_time(seconds, ends=True) is False:
            yield (
                f"{what} {duration(seconds)} and misses the deadline of {duration(float(rule.deadline_s or 0))}: "
                "give a higher --cap or a later --deadline"
            )


def _warnings(checked: Checked, needs: Needs, rule: RateRule) -> Iterator[str]:
    reassignment, perhaps_running = checked.reassignment, set(checked.perhaps_running)
    still = [name for name in reassignment.without_data_movement if name not in perhaps_running]
    if perhaps_running:
        yield (
            f"{show(checked.perhaps_running)}: every target replica is among current_replicas, so nothing is copied, unless the move runs "
            "already (then give in_progress_adding_replicas), or a broker comes back and fetches what it missed (then give isr, or "
            "--recovering BROKER); with --cluster it is looked up"
        )
    elif not len(reassignment.copies) and not still and not checked.not_planned:
        yield "the request names no partition"
    elif not len(reassignment.copies):
        yield "no partition gains a replica: nothing is copied, so no throttle is needed"
    if still and len(reassignment.copies):
        yield f"no throttle is needed where nothing is copied: {show(still)}"
    if needs.whole_logs_count:
        copies = "1 copy is" if needs.whole_logs_count == 1 else f"{needs.whole_logs_count} copies are"
        yield (f"{copies} counted with the whole log: it is not known how much is there already")
    if needs.lacking:
        names = show(f"{lack.partition} ({', '.join(lack.lacks)})" for lack in needs.lacking)
        too_low = " and rates may be too low" if needs.lacks_minimums or rule.deadline_s is not None else ""
        yield (
            f"some values are unknown, so figures that depend on them are missing{too_low}: {names}. Give them in the request "
            "(`trimtab throttle plan --help` shows one), or let them be read from the cluster with --bootstrap or --cluster"
        )


def answer_of(plan: ThrottlePlan) -> dict[str, Any]:
    """What is printed; keys of maps are broker ids or topics as text, ascending. Equal plans give equal answers, key by key."""
    needs, copies = plan.needs, plan.reassignment.copies
    return {
        "leader_throttled_replicas": plan.lists.leader,
        "follower_throttled_replicas": plan.lists.follower,
        "partitions_moving": copies.names(),
        "partitions_without_data_movement": plan.reassignment.without_data_movement,
        "leader_bytes_to_send": _by_name(needs.bytes_left, "leader"),
        "follower_bytes_to_receive": _by_name(needs.bytes_left, "follower"),
        "leader_min_bytes_per_s": _by_name(needs.min_bytes_per_s, "leader"),
        "follower_min_bytes_per_s": _by_name(needs.min_bytes_per_s, "follower"),
        "disk_bytes_to_copy": _by_name(needs.bytes_left, "disk"),
        "disk_min_bytes_per_s": _by_name(needs.min_bytes_per_s, "disk"),
        "disk_rate_bytes_per_s": _by_name(plan.per_broker.rates, "disk"),
        "leader_min_write_rate_bytes_per_s": _by_name(needs.write_bytes_per_s, "leader"),
        "failover_safe_leader_min_bytes_per_s": _by_name(needs.failover_safe_min_bytes_per_s, "leader"),
        "uniform": {
            **_uniform_answer(plan.uniform, copies),
            "deadline_met": _is_in_time(plan, plan.uniform.plan),
        },
        "per_broker": {
            **_outcome_answer(plan.per_broker, copies),
            "deadline_met": _is_in_time(plan, plan.per_broker),
            "leader_rate_bytes_per_s": _by_name(plan.per_broker.rates, "leader"),
            "follower_rate_bytes_per_s": _by_name(plan.per_broker.rates, "follower"),
        },
        "batches": None if plan.batches is None else _batches_answer(plan, plan.batches),
        "unknown": needs.lacking,
        "not_planned": [each._asdict() for each in plan.not_planned],
        "warnings": plan.warnings,
        "fingerprint": copies.fingerprint(),
    }


def _is_in_time(plan: ThrottlePlan, found: RatePlan) -> bool | None:
    """What is known may take too long already."""
    if plan.rule.is_in_time(least_time_s(found.rates, plan.loads), ends=True) is False:
        return False
    return plan.rule.is_in_time(found.total_s, ends=found.feasible)


def _by_name(values: ByRole, role: Role) -> dict[str, int | None]:
    return {str(broker): value for broker, value in of_role(values, role).items()}


def _outcome_answer(plan: RatePlan, copies: Copies) -> dict[str, Any]:
    return {
        "feasible": plan.feasible,
        "violations": [
            {
                "broker": found.role.broker,
                "role": found.role.role,
                "rate_bytes_per_s": found.rate_bytes_per_s,
                "min_bytes_per_s": found.min_bytes_per_s,
                "deficit_bytes_per_s": found.deficit_bytes_per_s,
                "partitions": [name for name, _ in partitions_of(copies, found.role)],
            }
            for found in plan.violations
        ],
        "duration_s": {str(role): seconds for role, seconds in plan.durations_s.items()},
        "total_s": plan.total_s,
        "bottleneck": None if plan.bottleneck is None else str(plan.bottleneck),
    }


def _uniform_answer(found: UniformPlan, copies: Copies) -> dict[str, Any]:
    return {
        **_outcome_answer(found.plan, copies),
        "min_bytes_per_s": found.min_bytes_per_s,
        "rate_bytes_per_s": found.rate_bytes_per_s,
    }


def _batches_answer(plan: ThrottlePlan, found: BatchPlan) -> dict[str, Any]:
    return {
        "batches": [
            {**_uniform_answer(batch.plan, batch.copies), "partitions": batch.copies.names()}
            for batch in found.batches
        ],
        "total_s": found.total_s,
        "deadline_met": plan.rule.is_in_time(found.total_s, ends=found.ends),
        "total_at_cap_s": found.total_at_cap_s,
        "all_at_once_total_s": plan.uniform.plan.total_s,
        "explanation": "No batch has a higher minimum than all at once, and the brokers outside a batch wait: "
        f"{_compare(plan, found)}",
    }


_LIST_CHARACTERS = 100
_TOPIC_CHARACTERS = 12


def draw(plan: ThrottlePlan) -> str:
    """The plan as several lines, each with a line break at its end."""
    moving, still = len(plan.reassignment.copies), len(plan.reassignment.without_data_movement)
    fingerprint = plan.reassignment.copies.fingerprint()
    unmoved = f", {still:,} without data movement" if moving or still else ""
    left_out = f", {len(plan.not_planned):,} not planned" if plan.not_planned else ""
    named = "" if fingerprint is None else f"; fingerprint {fingerprint}"
    copied = (
        f"{counted(moving, 'partition')} {'is' if moving == 1 else 'are'} copied"
        if moving
        else "nothing is copied, as far as is said"
        if plan.is_doubted
        else "nothing is copied"
    )
    lines = [
        f"{copied}{unmoved}{left_out}{named}",
        *_draw_lists("leader", plan.lists.leader),
        *_draw_lists("follower", plan.lists.follower),
        *_table(plan),
        *_draw_verdicts(plan),
        *_draw_violations(plan),
        *_draw_left_out(plan.not_planned),
        *_draw_batches(plan),
        *(f"warning: {text}" for text in plan.warnings),
    ]
    return "\n".join([*lines, ""])


def _draw_lists(role: str, lists: Mapping[str, str]) -> Iterator[str]:
    if lists:
        yield ""
        yield f"{role}.replication.throttled.replicas"
    width = max([_TOPIC_CHARACTERS, *map(len, lists)])
    for topic, text in lists.items():
        yield f"  {topic:<{width}} {text if len(text) <= _LIST_CHARACTERS else f'{text[:_LIST_CHARACTERS]}…'}"


def _table(plan: ThrottlePlan) -> Iterator[str]:
    if not plan.loads:
        return
    yield ""
    yield (
        f"{'':<13}{'to copy':>10}{'writes':>12}{'minimum':>12}{'failover':>12}"
        f"{'uniform':>12}{'takes':>13}{'per broker':>12}{'takes':>13}"
    )
    for load in plan.loads:
        role = load.role
        writes = plan.needs.write_bytes_per_s[role]
        safe = (
            rate_text(plan.needs.failover_safe_min_bytes_per_s.get(role, 0)) if role.role == "leader" else ""
        )
        is_part = load.min_bytes_per_s is None and load.known_min_bytes_per_s is not None
        least = f"{'≥' * is_part}{rate_text(load.least_min_bytes_per_s)}"
        yield (
            f"{role!s:<13}{bytes_text(load.bytes_left):>10}{rate_text(writes):>12}{least:>12}{safe:>12}"
            f"{_draw_outcome(plan.uniform.plan, role)}{_draw_outcome(plan.per_broker, role)}"
        )
    leading = {load.role for load in plan.loads}
    for role, minimum in plan.needs.failover_safe_min_bytes_per_s.items():
        if role not in leading:
            yield f"{role!s:<13}{'leads none now':>34}{rate_text(minimum):>12}"


def _draw_outcome(plan: RatePlan, role: BrokerRole) -> str:
    failing = {found.role for found in plan.violations}
    takes = "never ends" if role in failing else duration(plan.durations_s[role])
    return f"{rate_text(plan.rates[role]):>12}{takes:>13}"


def _draw_verdicts(plan: ThrottlePlan) -> Iterator[str]:
    if not plan.loads:
        return
    yield ""
    for title, rates in (("uniform", plan.uniform.plan), ("per broker", plan.per_broker)):
        yield _verdict(title, rates, in_batches=plan.has_batches_that_end, without_rate=plan.without_rate)


def _verdict(title: str, plan: RatePlan, *, in_batches: bool, without_rate: str) -> str:
    """How a plan ends."""
    if plan.feasible is None:
        return f"{title}: unknown whether it ends, because the write rate of {without_rate} is unknown"
    if not plan.feasible and in_batches:
        return f"{title}: all at once it would never end, in the batches below it does"
    if not plan.feasible:
        return f"{title}: INFEASIBLE, it would never end"
    if plan.total_s is None:
        return f"{title}: it ends, but unknown sizes leave open when"
    slowest = "" if plan.bottleneck is None else f", {plan.bottleneck} is the last"
    return f"{title}: done in {duration(plan.total_s)}{slowest}"


def _draw_violations(plan: ThrottlePlan) -> Iterator[str]:
    """Each once, with the partitions that need most."""
    for found in dict.fromkeys([*plan.uniform.plan.violations, *plan.per_broker.violations]):
        needs = partitions_of(plan.reassignment.copies, found.role)
        names = show(f"{partition} needs {rate_text(need)}" for partition, need in needs)
        yield f"{_draw_violation(found)} ({names})"


def _draw_violation(found: Violation) -> str:
    rate = f"  {found.role}: {rate_text(found.rate_bytes_per_s)} is"
    if not found.deficit_bytes_per_s:
        return f"{rate} its minimum, and a rate must be above that"
    return (
        f"{rate} not above its minimum of {rate_text(found.min_bytes_per_s)}, "
        f"it must rise by more than {rate_text(found.deficit_bytes_per_s)}"
    )


def _draw_left_out(not_planned: Sequence[NotPlanned]) -> Iterator[str]:
    if not_planned:
        are = "is" if len(not_planned) == 1 else "are"
        names = show(each.partition for each in not_planned)
        yield f"{counted(len(not_planned), 'partition')} {are} not planned: {names}"


def _draw_batches(plan: ThrottlePlan) -> Iterator[str]:
    if plan.batches is None:
        return
    yield ""
    for number, batch in enumerate(plan.batches.batches, 1):
        names = batch.copies.names()
        some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")  # noqa: PLR2004
        yield (
            f"batch {number}: minimum {rate_text(batch.plan.min_bytes_per_s)}, rate {rate_text(batch.plan.rate_bytes_per_s)}, "
            f"{_takes(batch.plan.plan.total_s, ends=batch.plan.plan.feasible)}: {some}"
        )
    yield _compare(plan, plan.batches)


def _compare(plan: ThrottlePlan, found: BatchPlan) -> str:
    """How long the batches take together, and all at once."""
    at_cap, uniform = found.total_at_cap_s, plan.uniform
    capped = "" if at_cap is None else f" ({duration(at_cap)} with each at the cap)"
    in_time = ", within the deadline" if plan.rule.is_in_time(found.total_s, ends=found.ends) else ""
    return (
        f"one batch after the other {_takes(found.total_s, ends=found.ends)}{capped}{in_time}; all at once "
        f"{_takes(uniform.plan.total_s, ends=uniform.plan.feasible)} at {rate_text(uniform.rate_bytes_per_s)}"
    )


def _takes(seconds: float | None, *, ends: bool | None) -> str:
    """How long something takes, unless it is known that it never ends."""
    return "never ends" if ends is False else f"takes {duration(seconds)}"
