"""What the policy sees of a round: what was measured, or that with the shadow of a dry-run."""

from collections.abc import Mapping
from dataclasses import dataclass

from policies.costs import Costs
from state.engine.closing import Closing
from state.engine.memory import Header
from state.outputs import ShadowSummary
from state.pulsar import fleet, masks, summary
from state.pulsar.groups import Groups
from state.pulsar.memory import WaitingReport
from state.pulsar.shadow import Shadow, of_round
from state.pulsar.tables import Eligible, Loads, eligible, loads


@dataclass(frozen=True, slots=True)
class Counted:
    """What the policy sees: what was measured, or that with the shadow of a dry-run."""

    loads: Loads
    table: Eligible
    shadow: ShadowSummary | None


def view_of(
    closing: Closing,
    header: Header,
    advanced: fleet.Advanced,
    round_loads: Loads,
    reports: Mapping[str, WaitingReport],
    costs: Costs,
    moved: Shadow | None = None,
) -> Eligible:
    pulsar = closing.settings.pulsar
    tick = closing.open_round.tick
    asked = () if tick is None else tick.asked
    not_missed = {*reports, *pulsar.guards.excluded_brokers, *closing.upkeep.apart}
    unsettled = masks.unsettled_brokers(header, pulsar, end_ms=closing.end_ms)
    return eligible(
        round_loads,
        advanced,
        masks.unload_mask(
            advanced, header, pulsar, unsettled, end_ms=closing.end_ms, resting=closing.upkeep.namespaces
        ),
        Groups.of(header.facts),
        header.ledger,
        end_ms=closing.end_ms,
        reports=reports,
        costs=costs,
        missing=sorted({*asked} - not_missed),
        unsettled=unsettled,
        shadow=moved,
    )


def with_shadow(
    closing: Closing,
    header: Header,
    advanced: fleet.Advanced,
    reports: dict[str, WaitingReport],
    costs: Costs,
) -> Counted | None:
    """What the policy sees with the shadow; None where no bundle counts at another broker."""
    moved = of_round(advanced.fleet.shadow, advanced, costs)
    if moved is None:
        return None
    pulsar, apart = closing.settings.pulsar, closing.upkeep.apart
    counted = loads(reports, pulsar, advanced, end_ms=closing.end_ms, shadow=moved, apart=apart)
    usage = summary.usage_summary(100.0 * counted.usage_ratio[counted.included])
    if usage is None:  # every broker is excluded, and nothing is decided
        return None
    return Counted(
        counted,
        view_of(closing, header, advanced, counted, reports, costs, moved),
        moved.section(usage=usage),
    )
