"""All shedding policies: the only place that lists them.

The settings, their reference page, the encoding of the memory, the labels of the metrics and the words of the summary
follow from this list. A policy is added with one line here.
"""

from typing import Any

from policies.shedding import (
    avg_shedder,
    fleet_planner,
    overload_shedder,
    threshold_shedder,
    transfer_shedder,
    uniform_load_shedder,
)
from policies.shedding.contract import SheddingPolicy

AnyPolicy = SheddingPolicy[Any, Any, Any]

POLICIES: tuple[AnyPolicy, ...] = (
    avg_shedder.POLICY,
    threshold_shedder.POLICY,
    uniform_load_shedder.POLICY,
    overload_shedder.POLICY,
    transfer_shedder.POLICY,
    fleet_planner.POLICY,
)
"""The first one is the default."""


def find_policy(name: str) -> AnyPolicy | None:
    """The policy of that name; None where there is none, for example after a policy was removed."""
    return next((policy for policy in POLICIES if policy.name == name), None)
