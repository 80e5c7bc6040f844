"""What is remembered of drains: when each began, what was put back at its broker since, and what the broker's reports leave out.

A report that leaves bundles out does not show that they are gone: whoever stops the broker then interrupts their clients. So a bundle
with traffic counts as left at its drained broker, whatever the policy and however long nobody lists it, until something shows that
it is gone.

Source: ours; Pulsar knows of no drain.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from policies.columns import Ints
from policies.shedding.view import Traffic
from state.events import THROUGHPUT_IN, namespace_of
from state.memory import DrainRecord
from state.outputs import Finding
from state.pulsar.listings import match
from state.pulsar.memory import NOBODY, Fleet
from state.pulsar.overlaps import covers, find_overlaps
from state.pulsar.view import RoundContext


def begin(context: RoundContext) -> list[tuple[str, str]]:
    """Remember drains as they begin and forget those that ended; returns the bundles that came to a broker while it was drained, and it.

    What a drained broker's report leaves out is remembered, too, until something shows that it is gone.
    """
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
            begun = DrainRecord(report_ms, len(rows))
            left_out = _left_out(context, broker, begun)
            header.drains[broker] = msgspec.structs.replace(
                begun, bundles_count=len(rows) + len(left_out), left_out=left_out
            )
            continue
        there = _came_back(context, broker, rows, known)
        put_back += [(bundle, broker) for bundle in there]
        hidden = _bundles_of(advanced.fleet, broker).intersection(known.put_back) if known.put_back else set()
        header.drains[broker] = msgspec.structs.replace(
            known,
            put_back=tuple(sorted(hidden.union(there))),
            left_out=_left_out(context, broker, known),
        )
    return put_back


def _left_out(context: RoundContext, broker: str, known: DrainRecord) -> dict[str, Traffic]:
    """Bundles with traffic that a drained broker had, that its report leaves out, and that nothing shows to be gone.

    One is gone once a broker lists it or a part of it, or once the newest action on it since the drain began is known to have succeeded.
    """
    before = context.before
    rows = _rows_of(before, broker)
    averages = before.averages[rows]
    messages, volume = averages[:, :THROUGHPUT_IN].sum(axis=1), averages[:, THROUGHPUT_IN:].sum(axis=1)
    left_out = known.left_out | {
        before.bundles[row]: Traffic(*rates)
        for row, *rates in zip(rows.tolist(), messages.tolist(), volume.tolist(), strict=True)
        if any(rates)
    }
    if not left_out:
        return {}
    gone = set(context.advanced.owners_of(left_out))
    newest = {each.bundle: each for each in context.ledger.decisions if each.decided_ms >= known.report_ms}
    gone |= {bundle for bundle, each in newest.items() if each.result == "succeeded"}
    namespaces = set(map(namespace_of, left_out.keys() - gone))
    listed = context.fleet.bundles[: context.advanced.owned_count] if namespaces else ()
    near = {bundle for bundle in listed if namespace_of(bundle) in namespaces}
    gone |= find_overlaps(near.union(left_out)).keys()
    return {bundle: left_out[bundle] for bundle in sorted(left_out.keys() - gone)}


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
    return {fleet.bundles[row] for row in _rows_of(fleet, broker)}


def _rows_of(fleet: Fleet, broker: str) -> Ints:
    """Rows of these bundles."""
    place = fleet.brokers.index(broker) if broker in fleet.brokers else len(fleet.brokers)
    return np.flatnonzero(fleet.owner == place)


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
