"""All placements: the only place that lists them. A placement is added with one line here."""

from policies.placement import least_long_term_message_rate, least_resource_usage
from policies.placement.contract import Placement

LEFT_TO_PULSAR = "broker"
"""The value of the setting that leaves the choice to Pulsar."""

PLACEMENTS: tuple[Placement, ...] = (least_long_term_message_rate.PLACEMENT, least_resource_usage.PLACEMENT)


def find_placement(name: str) -> Placement | None:
    """The placement of that name; None where the choice is left to Pulsar."""
    return next((each for each in PLACEMENTS if each.name == name), None)
