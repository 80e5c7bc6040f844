"""Label values that are known before anything happens, taken from where they are declared."""

from typing import get_args, get_type_hints

from policies.shedding import registry
from policies.shedding.contract import BUNDLE_OUTCOMES
from policies.splitting.plan import OUTCOMES
from state.closing import GeneralReason, SplitReason, UnloadReason
from state.events import ActionOutcome, RejectReason
from state.outputs import Finding
from state.pulsar.masks import MASK_REASONS, SPLIT_MASK_OUTCOMES
from streaming.controller.metrics import KnownLabels
from streaming.transport.intake import EVENT_TYPES

KNOWN_LABELS = KnownLabels(
    rejected_reasons=get_args(RejectReason),
    event_types=EVENT_TYPES,
    examined_outcomes=tuple(sorted({outcome for policy in registry.POLICIES for outcome in policy.outcomes})),
    candidate_outcomes=tuple(
        sorted(
            {*BUNDLE_OUTCOMES, *MASK_REASONS, *get_args(GeneralReason), *get_args(UnloadReason)}
            - {"", "masked"}
        )
    ),
    calm_outcomes=tuple(
        sorted({outcome for policy in registry.POLICIES for outcome in policy.calm_outcomes})
    ),
    result_outcomes=get_args(ActionOutcome),
    split_outcomes=tuple(
        sorted(
            {*OUTCOMES, *SPLIT_MASK_OUTCOMES, *get_args(GeneralReason), *get_args(SplitReason)} - {"masked"}
        )
    ),
    finding_kinds=get_args(get_type_hints(Finding)["kind"]),
)
