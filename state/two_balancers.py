"""Whether another balancer is at work on a cluster: two that do not know of each other undo each other's moves."""

from collections.abc import Sequence

from state.facts import Facts
from state.guards import Hold
from state.outputs import OtherBalancers
from state.settings import GuardSettings

_NAMED_COUNT = 3


def two_balancers_hold(facts: Facts | None, guards: GuardSettings) -> Hold | None:
    """Why nothing is done beside the other one, if so; a broker that could not be asked holds nothing."""
    if facts is None or not guards.hold_beside_other_balancer:
        return None
    for brokers, what, key in (
        (facts.shedding_brokers, "shedding", "loadBalancerSheddingEnabled"),
        (facts.splitting_brokers, "splitting", "loadBalancerAutoBundleSplitEnabled"),
    ):
        if brokers:
            return Hold(
                "two-balancers",
                f"Pulsar's own {what} is on at {named(brokers)}: set {key}=false at every broker",
            )
    return None


def named(brokers: Sequence[str]) -> str:
    """The first of some brokers, for a sentence."""
    more = len(brokers) - _NAMED_COUNT
    return ", ".join(brokers[:_NAMED_COUNT]) + (f" and {more} more" if more > 0 else "")


def other_balancers(facts: Facts | None) -> OtherBalancers | None:
    """The same for the summary; None where nobody looked."""
    if facts is None:
        return None
    return OtherBalancers(
        shedding_brokers=facts.shedding_brokers,
        splitting_brokers=facts.splitting_brokers,
        unknown_brokers=facts.unknown_brokers,
    )
