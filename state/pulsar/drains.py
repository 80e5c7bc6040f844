"""The unloads that empty drained brokers, and what the summary says about maintenance and drains.

An operator drains a broker to take it away. All of its bundles leave, whatever the load is. They are not held by a cooldown, nor
by the guards for the sole bundle, trimtab's own topics, the least benefit, the calm after a change and unsettled brokers. They
are held by a pause and the other holds of the round, an action in flight, an action without effect, a namespace that is excluded
or under maintenance, anti-affinity, and the budgets; drains have an hourly budget of their own.

A bundle goes to the least used broker of its namespace's group that takes part in balancing; the heaviest bundle goes first. It
counts for its share of the drained broker's usage, by messages or bytes, whichever is more, and for no less than an equal share,
so that idle bundles do not all go to one broker.

Source: ours; Pulsar unloads everything of a broker at once when it stops.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

import msgspec
import numpy as np

from policies.columns import Bools, Floats
from policies.shedding.view import Traffic
from policies.wording import counted
from state.closing import GeneralReason
from state.events import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, LoadReport, namespace_of
from state.memory import DrainRecord
from state.outputs import (
    DrainRow,
    Finding,
    LeftRow,
    MaintenanceRow,
    MaintenanceSummary,
    Section,
    Unload,
    rfc3339,
)
from state.overlay import MaintenanceWindow, epoch_ms
from state.pulsar import masks
from state.pulsar.admission import Admission, Refusal, bundle_traffic, share_ratio
from state.pulsar.listings import match
from state.pulsar.memory import NOBODY, Fleet
from state.pulsar.overlaps import covers
from state.pulsar.view import RoundContext
from state.summary import MAX_REMARK_CHARACTERS, SHOWN_ROWS, section_of

POLICY = "drain"

OUTCOMES = (
    "acted",
    "in-flight",
    "excluded-namespace",
    "maintenance",
    "ineffective",
    "cooldown",
    "absent",
    "overlapping",
    "dry-run",
    "anti-affinity",
    "no-destination",
    "budget",
    *get_args(GeneralReason),
    "warm-up",
    "no-quorum",
)
"""Every outcome of a bundle at a drained broker; the last two are those of a round that decides nothing."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What a round does to empty its drained brokers."""

    unloads: list[Unload] = field(default_factory=list)
    left: list[LeftRow] = field(default_factory=list)
    """Every bundle of the drained brokers, the heaviest of each broker first."""


def begin(context: RoundContext) -> list[tuple[str, str]]:
    """Remember drains as they begin and forget those that ended; returns the bundles that came to a broker while it was drained, and it."""
    header, advanced, drains = context.header, context.advanced, context.closing.overlay.drained_brokers
    header.drains = {name: drain for name, drain in header.drains.items() if name in drains}
    put_back = []
    for broker in sorted(drains):
        rows = advanced.rows_of(broker)
        if rows is None:
            continue
        known = header.drains.get(broker)
        if known is None:
            place = advanced.fleet.brokers.index(broker)
            report_ms = int(advanced.fleet.broker_last_ms[place])
            header.drains[broker] = DrainRecord(report_ms, len(rows))
            continue
        there = _came_back(context, broker, rows, known)
        put_back += [(bundle, broker) for bundle in there]
        hidden = _bundles_of(advanced.fleet, broker).intersection(known.put_back) if known.put_back else set()
        header.drains[broker] = msgspec.structs.replace(known, put_back=tuple(sorted(hidden.union(there))))
    return put_back


def _came_back(context: RoundContext, broker: str, rows: range, known: DrainRecord) -> list[str]:
    """The bundles in these rows of a drained broker that came to it after its drain began.

    A run also begins anew after a gap in the reports, and with a split. So neither a bundle that the fleet before knew at this broker came
    to it, nor one whose range is that of bundles it had. After a silence for so long that the broker is forgotten, it is not known
    what it had.
    """
    fleet, before, begun_ms = context.fleet, context.before, context.advanced.runs_begun_ms(broker)
    names = [fleet.bundles[row] for row in rows if begun_ms[row] > known.report_ms]
    if not names:
        return []
    had, place, heard_ms = defaultdict[str, list[str]](list), NOBODY, -np.inf
    if broker in before.brokers:
        place = before.brokers.index(broker)
        heard_ms = int(before.broker_last_ms[place])
    for bundle in _bundles_of(before, broker).difference(known.put_back):
        had[namespace_of(bundle)].append(bundle)
    is_known = context.reports[broker].time_ms - heard_ms <= context.max_report_age_ms
    owners = np.append(before.owner, NOBODY)[match(before.bundles, names)].tolist()
    return [
        bundle
        for bundle, owner in zip(names, owners, strict=True)
        if bundle in known.put_back
        or owner not in {NOBODY, place}
        or (owner == NOBODY and is_known and not covers(had[namespace_of(bundle)], bundle))
    ]


def _bundles_of(fleet: Fleet, broker: str) -> set[str]:
    """What a broker owns, also what its last reports left out."""
    rows = np.flatnonzero(fleet.owner == fleet.brokers.index(broker)) if broker in fleet.brokers else ()
    return {fleet.bundles[row] for row in rows}


def decide(admission: Admission) -> Drained:
    """Move bundles off drained brokers, as far as they may leave."""
    context = admission.context
    if not context.closing.overlay.drained_brokers:
        return Drained()
    desk = _Desk(admission)
    for broker, window in context.closing.overlay.drained_brokers.items():
        rows = context.advanced.rows_of(broker)
        if rows is not None:
            desk.empty(broker, window, rows)
    return desk.drained


def stand_by(context: RoundContext, outcome: str, reason: str) -> Drained:
    """What a round leaves that decides nothing, for this reason."""
    drained, overlay = Drained(), context.closing.overlay
    for broker in overlay.drained_brokers:
        for leaving in _heaviest_first(context.fleet, context.advanced.rows_of(broker) or range(0)):
            drained.left.append(leaving.left_at(broker, outcome, reason))
    return drained


class _Leaving(NamedTuple):
    """A bundle of a drained broker: its row of the fleet, and its average rates in + out."""

    row: int
    bundle: str
    messages_per_s: float
    bytes_per_s: float

    def left_at(self, broker: str, outcome: str, detail: str) -> LeftRow:
        """What the summary says about it."""
        return LeftRow(
            bundle=self.bundle,
            broker=broker,
            outcome=outcome,
            detail=detail,
            messages_per_s=self.messages_per_s,
            bytes_per_s=self.bytes_per_s,
        )


def _heaviest_first(fleet: Fleet, rows: range) -> Iterator[_Leaving]:
    """The bundles in these rows of the fleet by their averages, ties by name."""
    averages = fleet.averages[rows.start : rows.stop]
    messages = averages[:, RATE_IN] + averages[:, RATE_OUT]
    volume = averages[:, THROUGHPUT_IN] + averages[:, THROUGHPUT_OUT]
    for at in np.lexsort((np.array(rows), -volume, -messages)).tolist():
        yield _Leaving(rows[at], fleet.bundles[rows[at]], float(messages[at]), float(volume[at]))


@dataclass(slots=True, kw_only=True, eq=False)
class _Source:
    """A drained broker, with its usage and traffic before the first bundle leaves."""

    broker: str
    window: MaintenanceWindow
    rows: range
    """Its bundles' rows of the fleet."""
    first_rules_row: int
    """Row of the first one in the rules."""
    usage_ratio: float
    traffic: Traffic
    left_count: int
    """Bundles that have not left yet."""
    lacks: Bools
    """Brokers of the view that do not measure a resource that this one uses, so that nobody knows what a bundle would take there, (n,)."""

    def rules_row_of(self, leaving: _Leaving) -> int:
        """A bundle's row in the rules."""
        return self.first_rules_row + leaving.row - self.rows.start

    def part_of(self, leaving: _Leaving) -> float:
        """How much of the broker a bundle is, by what it has most of; the parts of all bundles may be more than the whole."""
        return max(
            share_ratio(leaving.messages_per_s, self.traffic.messages_per_s),
            share_ratio(leaving.bytes_per_s, self.traffic.bytes_per_s),
            1.0 / len(self.rows),
        )


class _Desk:
    """Decides on the bundles of the drained brokers, one after the other."""

    def __init__(self, admission: Admission) -> None:
        self._admission, self._table = admission, admission.table
        self._codes = masks.drain_mask(admission.context)
        self._shown = _shown_already(admission.context)
        self._usage_ratio: Floats = self._table.view.brokers.usage_ratio.copy()
        self.drained = Drained()

    def empty(self, broker: str, window: MaintenanceWindow, rows: range) -> None:
        """Decide on all bundles of a broker, these rows of the fleet."""
        loads = self._table.loads
        source = _Source(
            broker=broker,
            window=window,
            rows=rows,
            first_rules_row=self._admission.rules.first_row_of(broker),
            usage_ratio=loads.points_of(broker) / 100.0,
            traffic=loads.traffic_of(broker),
            left_count=len(rows),
            lacks=loads.lack_what_is_used(broker, self._table.view.brokers.measured),
        )
        bundles = list(_heaviest_first(self._admission.context.fleet, rows))
        # all together take along what the broker uses, and no more
        whole_ratio = source.usage_ratio / max(1.0, sum(map(source.part_of, bundles)))
        for leaving in bundles:
            place = self._place_of(source, leaving)
            outcome, detail = ("acted", "acted") if isinstance(place, int) else place
            self.drained.left.append(leaving.left_at(broker, outcome, detail))
            if isinstance(place, int):
                self.drained.unloads.append(self._let_go(source, leaving, place))
                self._usage_ratio[place] += whole_ratio * source.part_of(leaving)

    def _place_of(self, source: _Source, leaving: _Leaving) -> int | Refusal:
        """The broker row that a bundle goes to, or why it stays for now."""
        if leaving.bundle in self._shown:
            return self._shown[leaving.bundle]
        code = int(self._codes[leaving.row])
        if code != masks.Mask.OPEN:
            return masks.MASK_REASONS[code], masks.MASK_REASONS[code]
        rules_row = source.rules_row_of(leaving)
        hold = self._admission.hold_leaving(rules_row)
        if hold is not None:
            return hold.reason, hold.detail
        namespace, first = namespace_of(leaving.bundle), None
        for broker in self._least_used(source, namespace):
            barred = self._admission.rules.bars(rules_row, broker)
            if barred is None:
                return broker
            first = first or (barred.rule, barred.detail)
        detail = (
            "no broker may receive a bundle: each is drained, under maintenance or without a report"
            if self._admission.context.groups.is_one
            else f"no broker of the isolation group of {namespace} may receive a bundle"
        )
        return first or ("no-destination", detail)

    def _least_used(self, source: _Source, namespace: str) -> list[int]:
        """Broker rows of a namespace's group, those first of which it is known how full they are, and that are not full.

        What is not measured is not idle: then come those that lack a resource, full ones, and those that measure nothing.
        """
        group = int(self._admission.context.groups.of_namespaces([namespace])[0])
        rows = np.flatnonzero(self._table.broker_groups == group)
        is_unmeasured = ~self._table.view.brokers.is_measured[rows]
        usage_ratio, lacks = self._usage_ratio[rows], source.lacks[rows]
        rank = np.select([is_unmeasured, lacks, usage_ratio >= 1.0], [3, 1, 2], 0)
        least_used: list[int] = rows[np.lexsort((rows, usage_ratio, rank))].tolist()
        return least_used

    def _let_go(self, source: _Source, leaving: _Leaving, place: int) -> Unload:
        usage_points = 100.0 * float(self._usage_ratio[place])
        self._admission.rules.take(source.rules_row_of(leaving), place)
        source.left_count -= 1
        target, window = self._table.view.brokers.names[place], source.window
        of_what = (
            f" of what it measures, which is less than {source.broker} does" if source.lacks[place] else ""
        )
        _, bundle, messages, volume = leaving
        return self._admission.unload(
            bundle,
            source=source.broker,
            destination=target,
            policy=POLICY,
            trigger=POLICY,
            reason=f"{source.broker} is drained by {window.who or 'somebody'} ({window.why or 'no reason given'}): moving {bundle} "
            f"({messages:.0f} messages/s, {volume:.0f} bytes/s) to {target}, at {usage_points:.1f} %{of_what}; after that "
            f"{source.broker} has {counted(source.left_count, 'bundle')}{self._own_text(source.broker)}",
            evidence={
                **bundle_traffic(messages, volume),
                "bundles_left_count": source.left_count,
                **self._admission.compared(place),
                "destination_usage_points": usage_points,
            },
        )

    def _own_text(self, broker: str) -> str:
        """The bundles of Pulsar's own that stay, as a part of a sentence."""
        report = self._admission.context.reports.get(broker)
        own_count = 0 if report is None else len(report.report.cluster_bundles)
        return f" and {own_count} of Pulsar's own, which stay" if own_count else ""


def _shown_already(context: RoundContext) -> dict[str, Refusal]:
    """By name, bundles whose unload a dry-run has already shown: they do not really leave, and are not shown again soon."""
    if not context.closing.is_dry_run:
        return {}
    resting = context.ledger.resting("unload", context.pulsar, end_ms=context.end_ms)
    return dict.fromkeys(resting.shown, ("cooldown", "cooldown: the dry-run has shown it")) | {
        bundle: ("dry-run", f"the dry-run has moved it to {there}")
        for bundle, (_, there) in context.fleet.shadow.items()
    }


def section(context: RoundContext, drained: Drained) -> MaintenanceSummary | None:
    """The section of a round; None where nothing is taken out of balancing."""
    overlay = context.closing.overlay
    if not overlay.has_maintenance:
        return None
    return MaintenanceSummary(
        brokers=_rows(overlay.maintenance_brokers),
        namespaces=[
            msgspec.structs.replace(row, bundles_count=_bundles_count(context.fleet, row.name))
            for row in _rows(overlay.maintenance_namespaces)
        ],
        drains=[
            _drain_row(context, row, context.reports.get(row.name)) for row in _rows(overlay.drained_brokers)
        ],
        bundles_left=_left(drained),
    )


def _rows(windows: Mapping[str, MaintenanceWindow]) -> list[MaintenanceRow]:
    return [
        MaintenanceRow(
            name=name,
            since=rfc3339(epoch_ms(window.since)),
            until=None if window.until is None else rfc3339(epoch_ms(window.until)),
            who=(window.who or "")[:MAX_REMARK_CHARACTERS],
            why=(window.why or "")[:MAX_REMARK_CHARACTERS],
        )
        for name, window in list(windows.items())[:SHOWN_ROWS]
    ]


def _bundles_count(fleet: Fleet, namespace: str) -> int:
    names = fleet.namespaces
    return int(np.count_nonzero(fleet.namespace == names.index(namespace))) if namespace in names else 0


def _drain_row(context: RoundContext, window: MaintenanceRow, report: LoadReport | None) -> DrainRow:
    rows, begun = context.advanced.rows_of(window.name), context.header.drains.get(window.name)
    left = None if rows is None else len(rows)
    own = [] if report is None else report.report.cluster_bundles
    return DrainRow(
        **msgspec.structs.asdict(window),
        state="silent" if left is None else "draining" if left else "only-system-bundles" if own else "empty",
        bundles_at_start_count=None if begun is None else begun.bundles_count,
        bundles_left_count=left,
        system_bundles_count=None if report is None else len(own),
        system_bundles=own[:SHOWN_ROWS],
    )


def _left(drained: Drained) -> Section[LeftRow]:
    """Bundles at drained brokers; those that stay are named before those that leave."""
    order = sorted(drained.left, key=lambda row: row.outcome == "acted")
    return section_of((row.outcome for row in order), order)


def find_put_back(put_back: Sequence[tuple[str, str]]) -> list[Finding]:
    """Bundles that Pulsar placed at a drained broker again, while they are there."""
    return [
        Finding(
            kind="put-back",
            subject=bundle,
            broker=broker,
            bytes_per_s=None,
            advice="it came to the broker after its drain began, because Pulsar placed it there or somebody moved it: the "
            "drain moves it off again once a broker may receive it",
        )
        for bundle, broker in put_back
    ]
