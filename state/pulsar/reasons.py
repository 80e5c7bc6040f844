"""The sentence an action gives as its reason: what its policy found, what moves, and what chose the destination.

Every number in it is part of the action's evidence.
"""

from policies.placement import PLACEMENTS
from policies.shedding.contract import Evidence
from policies.shedding.registry import AnyPolicy


def reason(
    *,
    policy: AnyPolicy,
    trigger: str,
    bundle: str,
    owner: str,
    source: str,
    partner: str | None,
    destination: str | None,
    evidence: Evidence,
) -> str:
    """One sentence for a person; ``partner`` is the broker that ``source`` was compared with.

    ``owner`` has the bundle; it is not ``source`` where a swap brings a bundle back.
    """
    finding = policy.sentences[trigger](source, partner, evidence)
    moved = (
        f"{evidence['bundle_messages_per_s']:.0f} messages/s, {evidence['bundle_bytes_per_s']:.0f} bytes/s"
    )
    returning = "" if owner == source else f" from {owner} in return"
    return f"{finding}: moving {bundle}{returning} ({moved}){_placement_sentence(destination, evidence)}"


def _placement_sentence(destination: str | None, evidence: Evidence) -> str:
    """Why it moves there, if a placement chose the destination."""
    chosen = next((each for each in PLACEMENTS if each.evidence in evidence), None)
    return "" if chosen is None or destination is None else chosen.sentence(destination, evidence)
