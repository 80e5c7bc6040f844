"""What is remembered about a Pulsar cluster beside the header: its fleet."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.costs import CostMemory
from policies.splitting.plan import BlindCut
from policies.usage import RESOURCES
from state.layouts import Names

NOBODY = -1
"""Owner of a bundle whose broker is forgotten."""

PolicyMemory = dict[str, dict[str, dict[str, Any]]]
"""Values by shedding policy, field of its memory, and broker or group (the default group is the empty text):
see ``state.pulsar.groups``."""


ShadowMoves = dict[str, tuple[str, str]]
"""By bundle that a dry-run has moved, the broker that has it and the one where it counts: see ``state.pulsar.shadow``."""


class Gathered(NamedTuple):
    """The one broker that has all bundles of ``pulsar/system``: see ``state.pulsar.findings``."""

    broker: str
    since_ms: int


def _no_ints() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(slots=True, eq=False)
class Fleet:
    """Brokers and bundles of one cluster and what the policies remember about them. Replaced, never mutated in place."""

    brokers: list[str] = field(default_factory=list)
    """Broker ids, ascending; k of them."""
    broker_last_ms: Ints = field(default_factory=_no_ints)
    """Time of each broker's newest snapshot report, (k,)."""
    above_limit_rounds: Ints = field(default_factory=lambda: np.zeros((0, len(RESOURCES)), dtype=np.int64))
    """Rounds in a row with an impossible usage of each resource, (k, resources): see ``state.pulsar.broker_findings``."""
    unmeasured_rounds: Ints = field(default_factory=lambda: np.zeros((0, len(RESOURCES)), dtype=np.int64))
    """Rounds in a row in which each resource was not measured, (k, resources)."""
    hot_rounds: Ints = field(default_factory=_no_ints)
    """Rounds in a row in which each broker was hot, (k,)."""
    idle_since_ms: Ints = field(default_factory=_no_ints)
    """Start of the first round since which each broker has carried nothing, -1 where it carries something, (k,)."""
    starts: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """(k + 1,): entries ``starts[i]:starts[i + 1]`` of the two columns below are broker i's listings."""
    listed_rows: Ints = field(default_factory=_no_ints)
    """Bundle row of each listing."""
    run_start_ms: Ints = field(default_factory=_no_ints)
    """When the unbroken run of each listing began."""
    bundle_names: Names = field(default_factory=lambda: Names([]))
    """Names of the bundles; b of them."""
    owner: Ints = field(default_factory=_no_ints)
    """Broker row that owns each bundle, -1 where that broker is forgotten, (b,)."""
    former: Ints = field(default_factory=_no_ints)
    """Broker row from which that owner took it over when it had just begun to list it, -1 where none is known, (b,)."""
    averages: Floats = field(default_factory=lambda: np.zeros((0, 4)))
    """Running averages of the traffic, (b, 4)."""
    samples: Ints = field(default_factory=_no_ints)
    """Samples in the average, at most ``bundle_average_samples``, (b,)."""
    last_ms: Ints = field(default_factory=_no_ints)
    """When each bundle was last listed, (b,)."""
    counts: Ints = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    """Topics and sessions, as last reported, (b, 2); 0 for a policy that keeps no absent bundles."""
    empty_rounds: Ints = field(default_factory=_no_ints)
    """Rounds in a row each bundle showed nothing of what it had, (b,); 0 for a policy that keeps no absent bundles."""
    listed_count: int = 0
    """How many bundles, the first ones, the last snapshot has."""
    has_absent: bool = False
    """Whether some of them only stayed there."""
    overlapping: dict[str, int] = field(default_factory=dict)
    """By bundle whose range overlaps others, or did within ``max_report_age_s``, the end of the last round that saw it."""
    owed_skip: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Whether the owner's next sample is its first after a move, (b,)."""
    namespaces: list[str] = field(default_factory=list)
    """Namespaces of the bundles; s of them."""
    namespace: Ints = field(default_factory=_no_ints)
    """Row of each bundle's namespace, (b,)."""
    split_averages: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    """Message rate and throughput, in + out, as the split criteria average them, (b, 2)."""
    split_samples: Ints = field(default_factory=_no_ints)
    """Samples in them, at most ``average_samples``, (b,); none while splits are switched off."""
    split_hits: Ints = field(default_factory=_no_ints)
    """Rounds in a row each bundle was above a limit of splits, or overloaded its broker, (b,)."""
    costs: CostMemory = field(default_factory=CostMemory)
    """What was learned of the costs of traffic."""
    policies: PolicyMemory = field(default_factory=dict)
    """What the shedding policies remember."""
    gathered: Gathered | None = None
    """Where the transaction coordinators are, if all are at one broker."""
    shadow: ShadowMoves = field(default_factory=dict)
    """What a dry-run has moved."""
    blind_cuts: dict[str, BlindCut] = field(default_factory=dict)
    """By listed bundle, the bundle it was cut from without knowing what its topics carry."""

    @property
    def bundles(self) -> list[str]:
        """Bundle names; b of them."""
        return self.bundle_names.each

    @bundles.setter
    def bundles(self, names: list[str]) -> None:
        self.bundle_names = Names(names)

    def forget_policies(self) -> None:
        """Reset the hit counts and whatever else the policies remember."""
        self.split_hits = np.zeros_like(self.split_hits)
        self.policies = {}
