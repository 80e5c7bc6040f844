"""Setting a planned throttle on the cluster before the move is started, so that the move never floods the network.

A rate that somebody else set is kept and reported unless it is to be replaced; lists are merged, never overwritten.
"""

from collections.abc import Mapping
from typing import Literal

from policies.throttle.lists import merge
from policies.throttle.rates import BrokerRole, Load, RatePlan, per_broker_plan
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import KafkaCluster, Throttle, changes_of
from streaming.planner.throttle.plan import ThrottlePlan
from streaming.planner.throttle.request import show
from streaming.planner.throttle.survey import Survey

Chosen = Literal["uniform", "per-broker"]


class NotApplied(ClusterError):
    """Nothing was set; the message says why and what to do."""


def apply_plan(
    kafka: KafkaCluster, plan: ThrottlePlan, found: Survey, *, chosen: Chosen, replace_rates: bool
) -> list[str]:
    """Set and read back what is not right yet; returns what was done, a line each. Raises ``NotApplied`` or ``ClusterError``."""
    if not plan.loads:
        return ["nothing is copied, so nothing was set"]
    outcome = plan.uniform.plan if chosen == "uniform" else plan.per_broker
    if outcome.feasible is not True:
        why = (
            "it would never end" if outcome.feasible is False else "it is not known whether it would ever end"
        )
        raise NotApplied(f"not applied: {why}; the throttle of the cluster is as it was")
    rates = {
        role: rate for role, rate in rates_of(plan, chosen).items() if role.broker not in found.unreachable
    }
    _refuse_other_rates(found.throttle, rates, replace_rates=replace_rates)
    lists, _ = merge(found.throttle.lists, plan.lists)
    try:
        changes = changes_of(found.throttle, lists, rates)
    except ValueError as error:
        raise NotApplied(f"not applied: {error}") from error
    kafka.apply(changes)
    done = [f"set and read back: {change}" for change in changes] or ["everything was set already"]
    return [
        *done,
        *(
            f"NOT set, the rates of broker {broker}: {why}"
            for broker, why in sorted(found.unreachable.items())
        ),
    ]


def rates_of(plan: ThrottlePlan, chosen: Chosen) -> dict[BrokerRole, int | None]:
    """A rate for every broker on a list. Sources that do not lead yet get one for their failover-safe minimum, in case they will."""
    outcome: RatePlan = plan.uniform.plan if chosen == "uniform" else plan.per_broker
    safe = (
        Load(role=BrokerRole("leader", broker), bytes_left=0, min_bytes_per_s=minimum)
        for broker, minimum in plan.needs.failover_safe_min_bytes_per_s.items()
        if BrokerRole("leader", broker) not in outcome.rates
    )
    spare = per_broker_plan(tuple(safe), plan.rule).rates
    if chosen == "uniform":
        spare = dict.fromkeys(spare, plan.uniform.rate_bytes_per_s)
    return {**outcome.rates, **spare}


def _refuse_other_rates(
    there: Throttle, rates: Mapping[BrokerRole, int | None], *, replace_rates: bool
) -> None:
    others = [
        f"{role} has {there.rates_bytes_per_s[role]}"
        for role, rate in rates.items()
        if role in there.rates_bytes_per_s and there.rates_bytes_per_s[role] != rate
    ]
    if others and not replace_rates:
        raise NotApplied(
            f"not applied: rates are set already and are kept ({show(others)}); "
            "to replace them, add --replace-rates"
        )
