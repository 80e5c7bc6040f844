"""The sentence an action gives as its reason: what its policy found, what moves, and who chose where to.

Every number in it is one of the action's evidence.
"""

from policies.shedding.contract import Evidence
from policies.shedding.registry import AnyPolicy


def reason(
    *,
    policy: AnyPolicy,
    trigger: str,
    bundle: str,
    source: str,
    partner: str | None,
    destination: str | None,
    evidence: Evidence,
) -> str:
    """One sentence for a person; ``partner`` is the broker that ``source`` was compared with."""
    finding = policy.sentences[trigger](source, partner, evidence)
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
