"""Why a wanted unload does not happen: whoever wants it, everything that can hold it is asked here, in one order.

A policy wants unloads, a person approves them, and a drain empties its broker. What holds the whole round comes first, the budget
last: it is spent as soon as nothing else holds the unload. Masks are not asked here: they are painted before (``state.pulsar.masks``).
"""

from collections.abc import Collection

from policies.shedding.registry import AnyPolicy
from policies.shedding.view import RoundView
from state.engine.holds import Hold
from state.pulsar.anti_affinity import AntiAffinity
from state.pulsar.budget import Budget
from state.pulsar.circumstances import Circumstances
from state.pulsar.moves import Move, name_of, share_of
from state.pulsar.tables import Eligible
from state.settings import GuardSettings


def hold_unload(
    move: Move,
    table: Eligible,
    circumstances: Circumstances,
    budget: Budget,
    spread: AntiAffinity,
    *,
    split_rows: Collection[int] = (),
    is_proposed: bool = False,
) -> Hold | None:
    """Why an unload does not happen; if it may, spends ``budget`` and returns None. Bundles of ``split_rows`` are split instead."""
    view, asking = table.view, circumstances.asking
    bundle, owner = view.bundles.names[move.row], view.brokers.names[move.source]
    return (
        circumstances.holds.unload
        or _overlapping(table, bundle)
        or _split_instead(split_rows, move.row, circumstances.policy)
        or circumstances.calm.hold_of(float(view.brokers.usage_ratio[move.source]))
        or _too_little(view, budget.guards, move)
        or spread.hold(table, move)
        or (
            asking.hold(owner, name_of(view, move.destination))
            if asking is not None and is_proposed
            else None
        )
        or budget.take(bundle, broker=owner, owned_count=int(table.owned_counts[move.source]))
    )


def hold_leaving(bundle: str, broker: str, circumstances: Circumstances, budget: Budget) -> Hold | None:
    """Why a bundle does not leave a drained broker, wherever it would go. Spends nothing: the bundle may find no destination."""
    return circumstances.holds.unload or budget.drain_hold(bundle, broker=broker)


def _split_instead(split_rows: Collection[int], row: int, policy: AnyPolicy) -> Hold | None:
    if row not in split_rows:
        return None
    if policy.splits_first:
        return Hold("split-instead", "it is split in this round, and its parts may move in a later one")
    return Hold("split-instead", "it is too big for any other broker and is split in this round")


def _overlapping(table: Eligible, bundle: str) -> Hold | None:
    if bundle not in table.overlapping:
        return None
    return Hold("overlapping", "its range overlaps others of its namespace, see the finding")


def _too_little(view: RoundView, guards: GuardSettings, move: Move) -> Hold | None:
    """Why a move is not worth the reconnects: it lowers usage too little."""
    if not guards.min_unload_benefit_points:
        return None
    points = 100.0 * float(view.brokers.usage_ratio[move.source]) * share_of(view, move)
    if points >= guards.min_unload_benefit_points:
        return None
    return Hold(
        "too-little-benefit",
        f"it would lower {view.brokers.names[move.source]} by {points:.3g} points, min_unload_benefit_points is "
        f"{guards.min_unload_benefit_points:g}",
    )
