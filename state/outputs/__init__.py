"""What a cluster's controller publishes: actions and round summaries, as data with a canonical form.

The same decision has the same bytes and the same id wherever and whenever it is computed. A better sentence or one more number of
evidence changes its bytes, not its id.
"""

from state.outputs.actions import Split, SplitChild, Unload
from state.outputs.canonical import Identified, Output, canonical, content_id, moment_ms, output, rfc3339
from state.outputs.effects import PromiseRow, PromisesSummary, ShadowRow, ShadowSummary, UsageSummary
from state.outputs.rows import (
    BrokerLoad,
    BrokerTraffic,
    CandidateRow,
    ExaminedRow,
    InFlightRow,
    JudgedRow,
    Section,
    SplitRow,
)
from state.outputs.summary import INFORMATION, Finding, OtherBalancers, RoundSummary
from state.outputs.throttle import RateViolation, Throttle, ThrottleSummary, UnknownNumber
from state.outputs.upkeep import (
    ApprovalRow,
    ApprovalSummary,
    ControlInForce,
    DrainRow,
    LeftRow,
    ProposalRow,
    SpellRow,
    UpkeepSummary,
)
