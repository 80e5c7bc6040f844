"""Whether another balancer is at work on a cluster: two that do not know of each other undo each other's moves."""

from state.engine.summary import join_names
from state.facts import Facts
from state.outputs import OtherBalancers


def balancer_at_work(facts: Facts | None) -> str | None:
    """Which of Pulsar's own balancers is on, and how to switch it off; None where none is known to be."""
    if facts is None:
        return None
    for brokers, what, key in (
        (facts.shedding_brokers, "shedding", "loadBalancerSheddingEnabled"),
        (facts.splitting_brokers, "splitting", "loadBalancerAutoBundleSplitEnabled"),
    ):
        if brokers:
            return f"Pulsar's own {what} is on at {join_names(brokers)}: set {key}=false at every broker"
    return None


def other_balancers(facts: Facts | None) -> OtherBalancers | None:
    """The other balancers for the summary; None where no collector has looked."""
    if facts is None:
        return None
    return OtherBalancers(
        shedding_brokers=facts.shedding_brokers,
        splitting_brokers=facts.splitting_brokers,
        unknown_brokers=facts.unknown_brokers,
    )
