"""The outcomes of TransferShedder in words."""

from collections.abc import Mapping
from typing import Final

from policies.shedding.outcomes import OutcomeText

OUTCOME_TEXTS: Final[Mapping[str, OutcomeText]] = {
    "below-target": OutcomeText(
        meaning="TransferShedder: the brokers' smoothed usages spread little, and no broker stands out",
        remedy="the usage of the brokers has to spread more than target_std_ratio",
    ),
    "cooldown": OutcomeText(
        meaning="TransferShedder: a broker has not published its load since `shedding_delay_s` after its last unload",
        advice="wait",
        remedy="every broker that was shed has to publish its load again, shedding_delay_s after that",
    ),
    "no-load-data": OutcomeText(
        meaning="TransferShedder: a broker has published no load, took it back after a move, or runs the modular load manager",
        advice="wait; if it lasts: is the collector's `failed` empty, and is this the right policy for the cluster?",
        remedy="every broker has to publish its load: the extensible load manager has to run at each of them",
    ),
    "outdated": OutcomeText(
        meaning="TransferShedder: what the brokers published is older than `load_data_ttl_s`",
        advice="see whether the brokers are alive",
        remedy="its broker has to publish its load again, or load_data_ttl_s has to be higher",
    ),
    "no-top-bundles": OutcomeText(
        meaning="TransferShedder: the busiest broker has published no bundle",
        remedy="its broker has to publish its heaviest bundles",
    ),
    "nothing-fits": OutcomeText(
        meaning="TransferShedder: no published bundle fits, and no swap makes room",
        advice="split its bundles, or publish more of them (`loadBalancerMaxNumberOfBundlesInBundleLoadReport`)",
        remedy="its broker has to have a bundle that fits, alone or in exchange for another",
    ),
}
