"""What a cluster's controller publishes: actions and round summaries, as data with a canonical form.

The same decision has the same bytes and the same id wherever and whenever it is computed. A better sentence or one more number of
evidence changes its bytes, not its id.
"""

from state.outputs.actions import (
    Identified,
    Output,
    Split,
    SplitChild,
    Unload,
    canonical,
    content_id,
    moment_ms,
    output,
    rfc3339,
)
from state.outputs.summary import (
    INFORMATION,
    ApprovalRow,
    ApprovalSummary,
    BrokerLoad,
    BrokerTraffic,
    CandidateRow,
    Configured,
    ControlInForce,
    DrainRow,
    ExaminedRow,
    Finding,
    InFlightRow,
    JudgedRow,
    KafkaBrokerLoad,
    LeftRow,
    MaintenanceRow,
    MaintenanceSummary,
    OtherBalancers,
    PromiseRow,
    PromisesSummary,
    ProposalRow,
    RateViolation,
    RoundSummary,
    Section,
    ShadowRow,
    ShadowSummary,
    SplitRow,
    Throttle,
    ThrottleSummary,
    UnknownNumber,
    UsageSummary,
)
