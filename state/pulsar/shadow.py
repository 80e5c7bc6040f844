"""The shadow of a dry-run: its own unloads count as if they had been carried out.

Without it a dry-run sees the same load round after round and "moves" one bundle after another off the same broker. So what each
bundle that it has moved costs its broker (``policies.costs``), each resource by itself, counts at the destination with the costs there.
An entry ends when the bundle is seen at another broker or is gone (also by a split), or when its destination has been silent
for ``max_report_age_s``. An unload without a destination makes no entry. The shadow is off while another balancer is found
shedding: then the dry-run is compared with what that balancer does.

Figures of brokers in the summary stay as they were measured; those with the shadow are in its section ``shadow``.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from policies.columns import Floats, Ints
from policies.costs import Costs, figures_of
from policies.usage import REPORTED_COUNT
from state.closing import Closing
from state.events import Published
from state.facts import Facts
from state.outputs import ShadowRow, ShadowSummary, Unload, UsageSummary
from state.pulsar.fleet import Advanced
from state.pulsar.listings import match
from state.pulsar.memory import Fleet, ShadowMoves
from state.summary import SHOWN_ROWS

NOWHERE = -1
"""Row of a broker that did not report in the round."""


def is_on(closing: Closing, facts: Facts | None) -> bool:
    """Whether decisions of this round count as if they were carried out."""
    sheds = facts is not None and bool(facts.shedding_brokers)
    return closing.is_dry_run and closing.settings.pulsar.shadow and not sheds


@dataclass(frozen=True, slots=True, eq=False)
class Shadow:
    """Bundles that count at another broker in a round; m of them, ascending by name."""

    bundles: tuple[str, ...]
    rows: Ints
    """(m,): row of the fleet."""
    owners: tuple[str, ...]
    """Brokers that really have them."""
    destinations: tuple[str, ...]
    figures: Floats
    """(m, resources, 2): what explains the cost of each, from its running averages and counts."""
    costs: Costs
    """Costs of the brokers that reported, ascending by name."""

    def __len__(self) -> int:
        return len(self.bundles)

    def shift(self, names: tuple[str, ...], used: Floats, limits: Floats) -> None:
        """Move what the bundles cost, in place: both are (brokers, resources), ``names`` those of ``costs``.

        A broker that did not report in the round is not among ``names``: load that it should get counts nowhere. What a broker does not
        measure stays as it is, but for what it carries.
        """
        measured = limits > 0
        measured[:, REPORTED_COUNT:] = used[:, REPORTED_COUNT:] >= 0
        for brokers, sign in ((self.owners, -1.0), (self.destinations, 1.0)):
            rows = match(names, brokers)
            there = rows != NOWHERE
            change = sign * self.costs.amounts_at(rows[there], self.figures[there])
            np.add.at(used, rows[there], np.where(measured[rows[there]], change, 0.0))
        np.copyto(used, 0.0, where=measured & (used < 0))

    def section(self, *, usage: UsageSummary) -> ShadowSummary:
        """The section of the summary."""
        shown = zip(self.bundles[:SHOWN_ROWS], self.owners, self.destinations, strict=False)
        rows = [ShadowRow(bundle=bundle, broker=owner, shadow_broker=there) for bundle, owner, there in shown]
        return ShadowSummary(count=len(self), usage=usage, heaviest=rows)


def keep(moves: ShadowMoves, advanced: Advanced, *, end_ms: int, max_report_age_ms: int) -> ShadowMoves:
    """The entries that still hold after a round's reports."""
    fleet = advanced.fleet
    heard_ms = dict(zip(fleet.brokers, fleet.broker_last_ms.tolist(), strict=True))
    missing = {bundle for bundle, (owner, _) in moves.items() if not advanced.owns(owner, bundle)}
    elsewhere = advanced.owners_of(missing) if missing else {}
    silent = missing & set(fleet.bundles) if missing else missing
    return {
        bundle: (owner, there)
        for bundle, (owner, there) in moves.items()
        if bundle not in elsewhere
        and (bundle not in missing or bundle in silent)
        and there in heard_ms
        and end_ms - heard_ms[there] <= max_report_age_ms
    }


def shadow_of_round(moves: ShadowMoves, advanced: Advanced, costs: Costs) -> Shadow | None:
    """The bundles that count at another broker in a round: those that their broker owns in it; None if there are none."""
    row_of = {bundle: advanced.row_of(owner, bundle) for bundle, (owner, _) in sorted(moves.items())}
    owned = {bundle: row for bundle, row in row_of.items() if row is not None}
    if not owned:
        return None
    rows = np.array(list(owned.values()), dtype=np.int64)
    return Shadow(
        bundles=tuple(owned),
        rows=rows,
        owners=tuple(moves[bundle][0] for bundle in owned),
        destinations=tuple(moves[bundle][1] for bundle in owned),
        figures=figures_of(advanced.fleet.averages[rows], advanced.counts[rows]),
        costs=costs,
    )


def republish(
    published: Published,
    gone: Collection[str],
    arriving: Mapping[str, float],
    change_ratio: float,
    change_bytes_per_s: float,
) -> Published:
    """What a broker would publish without some bundles and with others, by their bytes/s: these are among its heaviest at once."""
    volumes = dict(zip(published.top_bundles, published.top_bytes_per_s.tolist(), strict=True))
    volumes = {name: volume for name, volume in volumes.items() if name not in gone}
    volumes |= arriving
    top = sorted(volumes, key=volumes.__getitem__)
    return replace(
        published,
        usage_ratio=max(0.0, published.usage_ratio + change_ratio),
        bytes_per_s=max(0.0, published.bytes_per_s + change_bytes_per_s),
        top_bundles=top,
        top_bytes_per_s=np.array([volumes[name] for name in top]),
    )


def record(moves: ShadowMoves, unloads: list[Unload]) -> ShadowMoves:
    """The entries after a round's unloads; a bundle that goes back to the broker that really has it needs none."""
    entries = dict(moves)
    for unload in unloads:
        owner, _ = entries.pop(unload.bundle, (unload.source_broker, ""))
        if unload.destination_broker not in {None, owner}:
            entries[unload.bundle] = (owner, str(unload.destination_broker))
    return entries


def counted_owners(fleet: Fleet, owned_count: int, shadow: Shadow) -> tuple[Ints, Ints]:
    """Owner of each of the fleet's leading bundles with the shadow, ascending, and the rows of the fleet in this order.

    Within a broker, bundles are in the order of their names, as without the shadow.
    """
    place = {name: row for row, name in enumerate(fleet.brokers)}
    owner = fleet.owner[:owned_count].copy()
    owner[shadow.rows] = [place[name] for name in shadow.destinations]
    order: Ints = np.argsort(owner, kind="stable")
    sorted_owner = owner[order]
    for broker in {place[name] for name in shadow.destinations}:
        start, end = np.searchsorted(sorted_owner, [broker, broker + 1])
        order[start:end] = sorted(order[start:end].tolist(), key=fleet.bundles.__getitem__)
    return sorted_owner, order
