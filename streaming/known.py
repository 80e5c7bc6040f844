"""Label values that are known before anything happens, taken from where they are declared."""

from typing import get_args

from policies.shedding import avg_shedder, threshold_shedder
from policies.shedding.plan import BUNDLE_OUTCOMES
from state.events import ActionOutcome, RejectReason
from state.guards import MASK_REASONS, HoldReason
from streaming.intake import EVENT_TYPES
from streaming.metrics import KnownLabels

KNOWN_LABELS = KnownLabels(
    rejected_reasons=get_args(RejectReason),
    event_types=EVENT_TYPES,
    examined_outcomes=tuple(sorted({*avg_shedder.OUTCOMES, *threshold_shedder.OUTCOMES})),
    candidate_outcomes=tuple(
        sorted({*BUNDLE_OUTCOMES, *MASK_REASONS, *get_args(HoldReason)} - {"", "masked"})
    ),
    calm_outcomes=tuple(
        sorted(
            {
                avg_shedder.OUTCOMES[avg_shedder.BELOW_THRESHOLD],
                *(
                    threshold_shedder.OUTCOMES[code]
                    for code in (
                        threshold_shedder.BELOW_THRESHOLD,
                        threshold_shedder.ALREADY_RECOVERED,
                        threshold_shedder.CLUSTER_IDLE,
                    )
                ),
            }
        )
    ),
    action_kinds=("unload",),
    result_outcomes=get_args(ActionOutcome),
)
