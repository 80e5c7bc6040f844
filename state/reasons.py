"""The sentence an action gives as its reason: what its policy found, what moves, and who chose where to.

Every number in it is one of the action's evidence; a policy without an entry here cannot act.
"""

from collections.abc import Callable, Mapping

from policies.shedding import avg_shedder, overload_shedder, threshold_shedder, uniform_load_shedder

Evidence = Mapping[str, float | int | str]


def reason(
    *,
    policy: str,
    trigger: str,
    bundle: str,
    source: str,
    partner: str | None,
    destination: str | None,
    evidence: Evidence,
) -> str:
    """One sentence for a person; ``partner`` is the broker that ``source`` was compared with."""
    finding = _FINDINGS[policy, trigger](source, partner, evidence)
    moved = (
        f"{evidence['bundle_messages_per_s']:.0f} messages/s, {evidence['bundle_bytes_per_s']:.0f} bytes/s"
    )
    return f"{finding}: moving {bundle} ({moved}){_placed(destination, evidence)}"


def _placed(destination: str | None, evidence: Evidence) -> str:
    """Why there, where a placement chose the destination."""
    if "destination_messages_per_s" in evidence:
        return f" to {destination}, the least busy at {evidence['destination_messages_per_s']:.0f} messages/s"
    if "destination_usage_points" in evidence:
        return f" to {destination}, the least used at {evidence['destination_usage_points']:.1f} %"
    return ""


def _pair_apart(source: str, partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} is at {evidence['high_usage_points']:.1f} % and {partner} at "
        f"{evidence['low_usage_points']:.1f} %, {evidence['difference_points']:.1f} points apart with "
        f"{evidence['threshold_points']:g} allowed, found {evidence['hit_count']} times "
        f"({evidence['needed_hit_count']} needed)"
    )


def _above_mean(source: str, partner: str | None, evidence: Evidence) -> str:  # noqa: ARG001  one for all
    return (
        f"{source} is at {evidence['history_points']:.1f} % over time ({evidence['usage_points']:.1f} % now) and the "
        f"mean is {evidence['mean_points']:.1f} %, with {evidence['threshold_points']:g} points allowed"
    )


def _rates_apart(source: str, partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} carries {evidence['broker_messages_per_s']:.0f} messages/s, "
        f"{evidence['difference_percent']:.1f} % above the {evidence['lowest_messages_per_s']:.0f} of {partner} with "
        f"{evidence['allowed_difference_percent']:g} % allowed"
    )


def _throughputs_apart(source: str, partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} carries {evidence['broker_bytes_per_s']:.0f} bytes/s, "
        f"{evidence['throughput_multiple']:.1f} times the {evidence['lowest_bytes_per_s']:.0f} of {partner} with "
        f"{evidence['allowed_throughput_multiple']:g} times allowed"
    )


def _overloaded(source: str, partner: str | None, evidence: Evidence) -> str:  # noqa: ARG001  one for all
    return f"{source} is at {evidence['usage_points']:.1f} %, with less than {evidence['threshold_points']:g} % allowed"


_FINDINGS: Mapping[tuple[str, str], Callable[[str, str | None, Evidence], str]] = {
    **{(avg_shedder.NAME, trigger): _pair_apart for trigger in avg_shedder.TRIGGERS[1:]},
    **{(threshold_shedder.NAME, trigger): _above_mean for trigger in threshold_shedder.TRIGGERS[1:]},
    (
        uniform_load_shedder.NAME,
        uniform_load_shedder.TRIGGERS[uniform_load_shedder.BY_RATE],
    ): _rates_apart,
    (
        uniform_load_shedder.NAME,
        uniform_load_shedder.TRIGGERS[uniform_load_shedder.BY_THROUGHPUT],
    ): _throughputs_apart,
    (overload_shedder.NAME, overload_shedder.TRIGGERS[1]): _overloaded,
}
