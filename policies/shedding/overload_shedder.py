"""OverloadShedder: shed every broker above a fixed usage.

From Pulsar: class ``OverloadShedder`` of 4.2.4. It has no memory and names no destination: a placement chooses.

Known to do badly: it does not compare brokers, so a fleet that is busy as a whole shuffles its bundles for ever,
and one that is unbalanced below the threshold stays so; because it always takes at least one bundle, a single hot
bundle wanders (#12604).

Where ours differs: brokers are taken from the highest usage, ties by name; with one broker nothing is shed (Pulsar
does not start a shedder then).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.bounds import NotNegative, check_bounds
from policies.columns import first_code
from policies.shedding.contract import (
    Evidence,
    Examined,
    Headline,
    NoMemory,
    Proposal,
    SheddingPolicy,
    keep_pending,
    stand_by,
)
from policies.shedding.plan import FEWEST_BROKERS, MARGIN_RATIO, PlanBuilder, choose_biggest_first
from policies.shedding.view import NOBODY, RoundView

NAME: Final = "overload-shedder"

OUTCOMES = ("fired", "below-threshold", "sole-bundle", "sole-broker")
FIRED, BELOW_THRESHOLD, SOLE_BUNDLE, SOLE_BROKER = range(len(OUTCOMES))
TRIGGERS = ("", "overloaded")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadShedderSettings:
    """The usage from which a broker is overloaded."""

    threshold_points: NotNegative = 85.0
    """Usage in percentage points from which a broker is shed. The placement `least-long-term-message-rate` gives
    brokers above it nothing while others are below.
    Pulsar: ``loadBalancerBrokerOverloadedThresholdPercentage``."""

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def threshold_ratio(self) -> float:
        """The same as a ratio, 1.0 = 100 %."""
        return self.threshold_points / 100.0


def plan(view: RoundView, memory: NoMemory, settings: OverloadShedderSettings) -> Proposal[NoMemory]:
    """Decide one round; what a broker should lose is in bytes/s."""
    brokers = view.brokers
    threshold = settings.threshold_ratio
    to_move = brokers.bytes_per_s * (brokers.usage_ratio - threshold + MARGIN_RATIO)
    tests = [
        (np.full(len(brokers), len(brokers) < FEWEST_BROKERS), SOLE_BROKER),
        (brokers.usage_ratio < threshold, BELOW_THRESHOLD),
        (brokers.listed_bundle_counts <= 1, SOLE_BUNDLE),
    ]
    order, count = np.argsort(-brokers.usage_ratio, kind="stable"), len(brokers)
    outcome = first_code(tests, FIRED)[order]
    examined = Examined(
        high=order,
        low=np.full(count, NOBODY, dtype=np.int64),
        outcome=outcome,
        outcomes=OUTCOMES,
        trigger=(outcome == FIRED).astype(np.int8),
        triggers=TRIGGERS,
        evidence={
            "usage_points": 100.0 * brokers.usage_ratio[order],
            "threshold_points": np.full(count, settings.threshold_points),
            "broker_bytes_per_s": brokers.bytes_per_s[order],
            "to_move_bytes_per_s": to_move[order],
        },
    )
    builder = PlanBuilder()
    fired = np.flatnonzero(outcome == FIRED)
    if len(fired):
        choose_biggest_first(view, builder, examined, to_move, fired)
    return Proposal(builder.build(examined), memory)


def _sentence(source: str, partner: str | None, evidence: Evidence) -> str:  # noqa: ARG001  compared with no broker
    return f"{source} is at {evidence['usage_points']:.1f} %, with less than {evidence['threshold_points']:g} % allowed"


POLICY: Final = SheddingPolicy(
    name=NAME,
    settings=OverloadShedderSettings,
    memory=NoMemory,
    plan=plan,
    settle=keep_pending,
    outcomes=OUTCOMES,
    calm_outcomes=("below-threshold", "sole-broker"),
    triggers=TRIGGERS,
    sentences={"overloaded": _sentence},
    headline=Headline(meaning="its usage", stand_of=stand_by("usage_points", "threshold_points")),
)
