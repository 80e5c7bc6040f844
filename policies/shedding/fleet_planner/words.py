"""The outcomes of the fleet planner in words."""

from collections.abc import Mapping
from typing import Final

from policies.shedding.outcomes import OutcomeText

OUTCOME_TEXTS: Final[Mapping[str, OutcomeText]] = {
    "within-spread": OutcomeText(
        meaning="its level is within the acceptable spread",
        remedy="its broker has to be further above the least used one than the acceptable spread",
    ),
    "receives": OutcomeText(
        meaning="bundles of hotter brokers go there in this round",
        remedy="its broker takes bundles of hotter brokers in this round",
    ),
    "not-sure": OutcomeText(
        meaning="it stands out by the first number of points, and the second is needed to be certain",
        advice="wait, or lower `noise_multiple`",
        remedy="its broker has to stand out more, or for longer, or noise_multiple has to be lower",
        example="not-sure 16.1/17.3",
    ),
    "no-better-place": OutcomeText(
        meaning="it stands out, but no bundle that may move would help",
        advice="see the outcomes of its bundles; allow splits: `[pulsar.split]`",
        remedy="another bundle of its broker has to help, or splits have to be on: [pulsar.split]",
    ),
    "every-broker-hot": OutcomeText(
        meaning="it stands out, no move helps, and even the coldest broker is above 85 %",
        advice="add brokers",
        remedy="another broker has to have room for its bundles: add brokers",
    ),
    "budget-spent": OutcomeText(
        meaning="it stands out, and a budget allows no more moves now",
        advice="wait, or raise the limit of `[pulsar.guards]` that the outcomes of its bundles name",
        remedy="a budget has to allow more moves: it is that of a round or of an hour",
        is_hold=True,
    ),
    "promises-failed": OutcomeText(
        meaning="most of the last unloads did not help as they should have",
        advice="see the finding `failed-promises`, and the [runbook](runbooks/promises-failed.md)",
        remedy="unloads have to help again, see the finding failed-promises, or: `trimtab resume`",
        is_hold=True,
    ),
}
