"""Who carries what in a round, and why a broker may not give a bundle away, or receive one, now.

Only what concerns the broker itself is said here: what holds the whole round is in the summary's reason, and what a policy thinks of the
broker among the pairs or brokers that it examined. Counts over bundles are columns; Python looks at the brokers that are shown.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from policies.columns import Bools, Codes, Floats, Ints
from policies.usage import RESOURCES
from state.outputs import BrokerLoad
from state.pulsar import masks
from state.pulsar.admission import ApprovalGate
from state.pulsar.holds import Calm, find_calm
from state.pulsar.listings import match
from state.pulsar.view import PolicyView, RoundContext
from state.pulsar.wording import stay_text
from state.summary import SHOWN_ROWS

_UNSETTLED = "the reports do not show its last move yet"
_UNREACHED = "the last unloads to it landed at other brokers, see the finding landed-elsewhere; it is chosen again within the hour"
_ALONE = "no other broker of its isolation group takes part in balancing"
_NOT_MEASURED = "it measures nothing that counts as usage"


def broker_rows(context: RoundContext, table: PolicyView, mask_codes: Codes) -> list[BrokerLoad]:
    """The heaviest brokers, ties by name; ``mask_codes`` are those of the fleet's leading bundles."""
    loads, standing = context.loads, _Standing.from_round(context, table, mask_codes)
    order = np.argsort(-loads.usage_ratio, kind="stable")[:SHOWN_ROWS]
    names = [loads.names[row] for row in order.tolist()]
    groups, counts = context.groups.names_of(names), standing.counts_of(names)
    totals = np.column_stack([loads.messages_per_s, loads.bytes_per_s])[order]
    inward = _inward(context.rates[order], totals)
    return [
        BrokerLoad(
            broker=name,
            usage_points=float(100.0 * loads.usage_ratio[row]),
            resources={
                resource: float(loads.percents[row, column])
                if loads.measured[row, column]
                else "not-measured"
                for column, resource in enumerate(RESOURCES)
            },
            messages_per_s=float(loads.messages_per_s[row]),
            bytes_per_s=float(loads.bytes_per_s[row]),
            in_messages_per_s=inward[place][0],
            in_bytes_per_s=inward[place][1],
            bundles_count=int(counts[place].sum()),
            resting_count=int(counts[place, [masks.Mask.COOLDOWN, masks.Mask.NOT_CONFIRMED]].sum()),
            excluded=not bool(loads.included[row]),
            group=groups[place],
            gives_none_reason=standing.gives_none_reason(name, float(loads.usage_ratio[row]), counts[place]),
            receives_none_reason=standing.receives_none_reason(name),
        )
        for place, (row, name) in enumerate(zip(order.tolist(), names, strict=True))
    ]


def _inward(rates: Floats, totals: Floats) -> list[list[float | None]]:
    """Messages/s and bytes/s in of each broker; None where it has traffic of which its bundles show nothing."""
    found = rates[:, ::2]
    is_known: Bools = (found + rates[:, 1::2] > 0) | (totals == 0)
    return [
        [value if known else None for value, known in zip(values, knows, strict=True)]
        for values, knows in zip(found.tolist(), is_known.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Standing:
    """What may hold the brokers of a round, each by itself."""

    context: RoundContext
    mask_counts: Ints
    """Bundles of each broker of the fleet by code of ``MASK_REASONS``, (k, codes)."""
    may_receive: Mapping[str, bool]
    """By broker that takes part in balancing."""
    lonely: Collection[str]
    """Those that are alone in their group."""
    unmeasured: Collection[str]
    """Those that the policy cannot place, because they measure nothing that counts."""
    unreached: Collection[str]
    """Those that the last unloads to them did not reach."""
    waiting: Mapping[str, str]
    """By broker, the id of the open proposal that keeps it from taking part in another."""
    calm: Calm

    @staticmethod
    def from_round(context: RoundContext, table: PolicyView, mask_codes: Codes) -> "_Standing":
        fleet, brokers, width = context.fleet, table.view.brokers, len(masks.MASK_REASONS)
        codes = fleet.owner[: len(mask_codes)] * width + mask_codes
        sizes = np.bincount(table.broker_groups)
        asking = None if context.pulsar.approval.standing else ApprovalGate.from_context(context)
        unmeasured = ~brokers.is_measured if context.pulsar.policy.plans_rounds else np.zeros(len(brokers))
        return _Standing(
            context=context,
            mask_counts=np.bincount(codes, minlength=width * len(fleet.brokers)).reshape(-1, width),
            may_receive=dict(zip(brokers.names, brokers.may_receive.tolist(), strict=True)),
            lonely={brokers.names[row] for row in np.flatnonzero(sizes[table.broker_groups] == 1).tolist()},
            unmeasured={brokers.names[row] for row in np.flatnonzero(unmeasured).tolist()},
            unreached=context.ledger.unreached_brokers(end_ms=context.end_ms),
            waiting={} if asking is None else asking.waiting,
            calm=find_calm(context),
        )

    def counts_of(self, names: list[str]) -> Ints:
        """Bundles of each of these brokers by code of ``MASK_REASONS``, (len(names), codes)."""
        found: Ints = self.mask_counts[match(self.context.fleet.brokers, names)]
        return found

    def gives_none_reason(self, name: str, usage_ratio: float, counts: Ints) -> str | None:
        """Why no bundle of a broker may leave; one that is drained may give all that it has."""
        count = int(counts.sum())
        if name in self.context.closing.overlay.drained_brokers and count:
            return None
        held = self._taken_out(name) or self._kept(name)
        if held is None and count == 0:
            return "it has no bundle"
        if held is None and count == 1 and self.context.guards.keep_sole_bundle:
            return "its only bundle stays (keep_sole_bundle)"
        if held is None and counts[masks.Mask.OPEN] == 0:
            return stay_text(Counter(dict(zip(masks.MASK_REASONS[1:], counts[1:].tolist(), strict=True))))
        calm = self.calm.hold_of(usage_ratio)
        return held or (None if calm is None else calm.detail)

    def receives_none_reason(self, name: str) -> str | None:
        """Why no bundle may move to a broker; what holds balancing does not hold the bundles of drained brokers."""
        kept = self._taken_out(name)
        if kept is None and (kept := self._kept(name)) and self.context.closing.overlay.drained_brokers:
            return f"{kept}; only bundles of drained brokers may come"
        return kept or (_UNREACHED if name in self.unreached else None)

    def _taken_out(self, name: str) -> str | None:
        """Why a broker takes no part in balancing."""
        overlay = self.context.closing.overlay
        if name in overlay.drained_brokers:
            return "it is drained"
        if name in overlay.maintenance_brokers:
            return "it is under maintenance"
        return "it is in excluded_brokers" if name in self.context.guards.excluded_brokers else None

    def _kept(self, name: str) -> str | None:
        """Why a broker that takes part in balancing neither gives nor receives."""
        if not self.may_receive[name] and name not in self.unreached:
            return _UNSETTLED
        if name in self.lonely:
            return _ALONE
        if name in self.unmeasured:
            return _NOT_MEASURED
        return f"proposal {self.waiting[name]} waits for approval" if name in self.waiting else None
