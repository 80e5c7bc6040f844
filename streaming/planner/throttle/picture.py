"""A throttle plan as text: what to set, what each broker has to do, and when the move is done at each of the rates."""

from collections.abc import Iterable, Iterator, Mapping

from policies.throttle.rates import BrokerRole, RatePlan
from streaming.planner.throttle.plan import ThrottlePlan

_KILO = 1000
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_LIST_CHARACTERS = 100
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def draw(plan: ThrottlePlan) -> str:
    """The plan as several lines, each with a line break at its end."""
    moving, still = len(plan.reassignment.moves), len(plan.reassignment.without_data_movement)
    fingerprint = plan.reassignment.moves.fingerprint()
    left_out = f", {len(plan.not_planned):,} not planned" if plan.not_planned else ""
    lines = [
        f"{moving:,} partitions move, {still:,} without data movement{left_out}; fingerprint {fingerprint}",
        *_lists("leader", plan.lists.leader),
        *_lists("follower", plan.lists.follower),
        *_table(plan),
        *_verdicts(plan),
        *_batches(plan),
        *(f"warning: {text}" for text in plan.warnings),
    ]
    return "\n".join([*lines, ""])


def size(value: float | None) -> str:
    """Bytes with three or four significant digits, in powers of 1,000; ? for unknown."""
    if value is None:
        return "?"
    unit = 0
    scaled = float(value)
    while scaled >= _KILO and unit < len(_UNITS) - 1:
        scaled /= _KILO
        unit += 1
    return f"{scaled:.1f} {_UNITS[unit]}" if unit else f"{value:.0f} B"


def rate(value: float | None) -> str:
    """Bytes/s in the same form."""
    return "?" if value is None else f"{size(value)}/s"


def duration(seconds: float | None) -> str:
    """Seconds as text in their two largest units; ? for unknown."""
    if seconds is None:
        return "?"
    if seconds < _MINUTE_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02} s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02} min"
    return f"{whole // _DAY_S:,} d {whole % _DAY_S // _HOUR_S:02} h"


def _lists(role: str, lists: Mapping[str, str]) -> Iterator[str]:
    if lists:
        yield ""
        yield f"{role}.replication.throttled.replicas"
    for topic, text in lists.items():
        yield f"  {topic:<12} {text if len(text) <= _LIST_CHARACTERS else f'{text[:_LIST_CHARACTERS]}…'}"


def _table(plan: ThrottlePlan) -> Iterator[str]:
    if not plan.loads:
        return
    yield ""
    yield (
        f"{'':<13}{'to move':>10}{'writes':>12}{'minimum':>12}{'failover':>12}"
        f"{'uniform':>12}{'takes':>13}{'per broker':>12}{'takes':>13}"
    )
    for load in plan.loads:
        role = load.role
        leads = role.role == "leader"
        needs = plan.needs
        writes = (needs.leader_min_write_rate_bytes_per_s if leads else needs.follower_min_bytes_per_s)[
            role.broker
        ]
        safe = rate(needs.failover_safe_min_bytes_per_s.get(role.broker, 0)) if leads else ""
        yield (
            f"{role!s:<13}{size(load.bytes_left):>10}{rate(writes):>12}{rate(load.min_bytes_per_s):>12}{safe:>12}"
            f"{_outcome(plan.uniform.plan, role)}{_outcome(plan.per_broker, role)}"
        )


def _outcome(plan: RatePlan, role: BrokerRole) -> str:
    failing = {found.role for found in plan.violations}
    takes = "never ends" if role in failing else duration(plan.durations_s[role])
    return f"{rate(plan.rates[role]):>12}{takes:>13}"


def _verdicts(plan: ThrottlePlan) -> Iterator[str]:
    yield ""
    yield _verdict("uniform", plan.uniform.plan)
    yield _verdict("per broker", plan.per_broker)
    yield from _first_of(plan.uniform.plan, plan.per_broker)


def _verdict(title: str, plan: RatePlan) -> str:
    if plan.feasible is None:
        return f"{title}: unknown whether it ends, see the warnings"
    if not plan.feasible:
        return f"{title}: INFEASIBLE, it would never end"
    slowest = "" if plan.bottleneck is None else f", {plan.bottleneck} is the last"
    return f"{title}: done in {duration(plan.total_s)}{slowest}"


def _first_of(*plans: RatePlan) -> Iterable[str]:
    """Violations, each once."""
    return dict.fromkeys(
        f"  {found.role}: {rate(found.rate_bytes_per_s)} is not above its minimum of "
        f"{rate(found.required_more_than_bytes_per_s)}, it must rise by more than {rate(found.deficit_bytes_per_s)}"
        for plan in plans
        for found in plan.violations
    )


def _batches(plan: ThrottlePlan) -> Iterator[str]:
    if plan.batches is None:
        return
    yield ""
    for number, batch in enumerate(plan.batches.batches, 1):
        names = batch.moves.names()
        some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")  # noqa: PLR2004
        yield (
            f"batch {number}: minimum {rate(batch.plan.min_bytes_per_s)}, rate {rate(batch.plan.rate_bytes_per_s)}, "
            f"takes {duration(batch.plan.plan.total_s)}: {some}"
        )
    at_cap = plan.batches.total_at_cap_s
    capped = "" if at_cap is None else f" ({duration(at_cap)} with each at the cap)"
    uniform = plan.uniform.plan
    at_once = "never ends" if uniform.feasible is False else f"takes {duration(uniform.total_s)}"
    yield (
        f"one batch after the other takes {duration(plan.batches.total_s)}{capped}; "
        f"all at once {at_once} at {rate(plan.uniform.rate_bytes_per_s)}"
    )
