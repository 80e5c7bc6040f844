"""The broker whose bundles have the lowest message rate.

From Pulsar 4.2.4: class ``LeastLongTermMessageRate``. The message rate is the running average of ``bundle_average_samples``, not
Pulsar's of 1,000 samples. It is known to do badly where messages differ in size, or brokers in what a message costs them.
"""

from typing import Final

import numpy as np

from policies.columns import Ints
from policies.placement.contract import Loads, Placement
from policies.shedding.contract import Evidence
from policies.shedding.view import RoundView

UNKNOWN_MESSAGES_PER_S = 100.0
"""Message rate of a bundle that has no sample yet: 50 in and 50 out, Pulsar's default for a bundle never seen."""


def loads(view: RoundView, rows: Ints, sources: Ints, overloaded_ratio: float) -> Loads:  # noqa: ARG001
    """A broker above ``overloaded_ratio`` receives nothing while another is below."""
    brokers, bundles = view.brokers, view.bundles
    traffic = np.where(bundles.sampled, bundles.messages_per_s, UNKNOWN_MESSAGES_PER_S)
    owner = np.repeat(np.arange(len(brokers)), np.diff(bundles.starts))
    load = np.bincount(owner, weights=traffic, minlength=len(brokers))
    spared = brokers.may_receive & (brokers.usage_ratio <= overloaded_ratio)
    return Loads(
        cost=np.where(spared if spared.any() else brokers.may_receive, load, np.inf), moved=traffic[rows]
    )


def _sentence(destination: str, evidence: Evidence) -> str:
    return f" to {destination}, the least busy at {evidence['destination_messages_per_s']:.0f} messages/s"


PLACEMENT: Final = Placement(
    name="least-long-term-message-rate",
    loads=loads,
    evidence="destination_messages_per_s",
    sentence=_sentence,
)
