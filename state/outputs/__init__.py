"""What a cluster's controller publishes: actions and round summaries, as data with a canonical form.

The same decision has the same bytes and the same id wherever and whenever it is computed. A better sentence or one more number of
evidence changes its bytes, not its id.
"""

from state.outputs.actions import (
    Identified,
    Output,
    Split,
    SplitChild,
    Throttle,
    Unload,
    canonical,
    content_id,
    output,
    rfc3339,
)
from state.outputs.requests import (
    ApprovalRow,
    ApprovalSummary,
    Configured,
    ControlInForce,
    DrainRow,
    LeftRow,
    MaintenanceRow,
    MaintenanceSummary,
    ProposalRow,
)
from state.outputs.sections import (
    INFORMATION,
    BrokerLoad,
    BrokerTraffic,
    CandidateRow,
    ExaminedRow,
    Finding,
    InFlightRow,
    JudgedRow,
    KafkaBrokerLoad,
    PromiseRow,
    PromisesSummary,
    Section,
    ShadowRow,
    ShadowSummary,
    SplitRow,
    UsageSummary,
)
from state.outputs.summary import (
    OtherBalancers,
    RateViolation,
    RoundSummary,
    ThrottleSummary,
    UnknownNumber,
)
