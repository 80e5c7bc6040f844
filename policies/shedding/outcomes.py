"""What the outcomes of an examined pair or broker mean, for the pages and for a person who asks why a bundle stays."""

from collections.abc import Mapping
from dataclasses import dataclass

FIRED = "fired"
"""The outcome of a row that wants unloads; every policy has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeText:
    """One outcome in words. All texts are clauses without a full stop; they may have Markdown for code."""

    meaning: str
    advice: str = ""
    """What a person can do; empty: nothing."""
    remedy: str = ""
    """What would have to change for its bundles to move, about "its" broker or fleet; empty for ``fired``."""
    is_hold: bool = False
    """Whether unloads that were wanted are held back, which people should know of."""
    example: str = ""
    """How the summary shows it, where it adds numbers."""


COMMON: Mapping[str, OutcomeText] = {
    FIRED: OutcomeText(meaning="it sheds; the outcomes of its bundles say what"),
    "hit-count": OutcomeText(
        meaning="it stands out, but not for long enough yet",
        advice="wait",
        remedy="its broker has to stand out for more rounds in a row",
        example="hit-count 3/8",
    ),
    "below-threshold": OutcomeText(
        meaning="its usage is close enough to the rest",
        remedy="its broker has to be further above the others than the threshold of the policy",
    ),
    "below-min-traffic": OutcomeText(
        meaning="too little would move to be worth a reconnect",
        advice="lower `min_unload_…` on small clusters",
        remedy="more traffic has to need a move, or min_unload_messages_per_s and min_unload_bytes_per_s have to be lower",
    ),
    "sole-bundle": OutcomeText(
        meaning="the broker lists only one bundle",
        advice="allow splits: `[pulsar.split]`",
        remedy="its broker has to have another bundle, or keep_sole_bundle has to be off, or splits on",
    ),
    "sole-broker": OutcomeText(
        meaning="there is no other broker in the snapshot", remedy="another broker has to report"
    ),
    "cluster-idle": OutcomeText(meaning="no load at all", remedy="the cluster has to have load"),
}
"""Outcomes that several policies have; a policy may word one differently."""
