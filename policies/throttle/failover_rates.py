"""Rates for what is not measured now: brokers that join while reports are missing, and a failover, when any source may lead."""

from collections.abc import Mapping

from policies.throttle.needs import Needs
from policies.throttle.pacing_lists import ListSteps
from policies.throttle.pacing_plan import PacingMemory
from policies.throttle.rates import BrokerRole, Load, RateRule, fraction_of, per_broker_plan, uniform_plan
from policies.throttle.settings import ThrottleSettings


def stretch_rates(rates: Mapping[BrokerRole, int], lists: ListSteps) -> dict[BrokerRole, int]:
    """The same rates; brokers that join get the highest of them, because it is not known what they need."""
    return {**dict.fromkeys(lists.roles(), max(rates.values())), **rates}


def fallback_rates(
    memory: PacingMemory, settings: ThrottleSettings, rates: Mapping[BrokerRole, int]
) -> dict[BrokerRole, int]:
    """Rates for the failover-safe minimums; no cap, because the network is not measured now."""
    rule = RateRule(
        headroom_ratio=fraction_of(settings.headroom_ratio), floor_bytes_per_s=settings.floor_bytes_per_s
    )
    loads = safe_loads(memory)
    if settings.rates == "uniform":
        rate = uniform_plan(loads, rule).rate_bytes_per_s
        return {} if rate is None or not loads else dict.fromkeys(rates, rate)
    return {role: rate for role, rate in per_broker_plan(loads, rule).rates.items() if rate is not None}


def safe_loads(memory: PacingMemory) -> tuple[Load, ...]:
    leaders = ((BrokerRole("leader", broker), need) for broker, need in memory.safe_leader_mins.items())
    followers = ((BrokerRole("follower", broker), need) for broker, need in memory.safe_follower_mins.items())
    return tuple(
        Load(role=role, bytes_left=None, min_bytes_per_s=need) for role, need in (*leaders, *followers)
    )


def safe_minimums(memory: PacingMemory, needs: Needs) -> tuple[dict[int, int], dict[int, int]]:
    """Failover-safe minimums of leaders and of followers; what a partition needed before it lost its leader still counts."""
    leaders, followers = (
        _known_values(needs.failover_safe_min_bytes_per_s),
        _known_values(needs.follower_min_bytes_per_s),
    )
    if not needs.without_leader:
        return leaders, followers
    return _raise_to_minimums(leaders, memory.safe_leader_mins), _raise_to_minimums(
        followers, memory.safe_follower_mins
    )


def _known_values(values: Mapping[int, int | None]) -> dict[int, int]:
    return {broker: value for broker, value in values.items() if value is not None}


def _raise_to_minimums(values: Mapping[int, int], least: Mapping[int, int]) -> dict[int, int]:
    return {broker: max(value, least.get(broker, 0)) for broker, value in values.items()}
