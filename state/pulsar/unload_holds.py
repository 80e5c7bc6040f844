"""Why a wanted unload does not happen: whoever wants it, everything that can hold it is asked here, in one order.

A policy wants unloads, a person approves them, and a drain empties its broker. What holds the whole round comes first, then what else
is against the unload; the rules (``policies.shedding.rules``) say where it may go and, last, whether a budget is left for it: it is
spent as soon as nothing holds the unload. Masks are not asked here: they are painted before (``state.pulsar.masks``).
"""

from collections.abc import Collection

from policies.shedding.registry import AnyPolicy
from policies.shedding.rules import Forbidden, Rules
from policies.shedding.view import RoundView
from state.engine.holds import Hold
from state.pulsar.circumstances import Circumstances
from state.pulsar.moves import Move, name_of, share_of
from state.pulsar.tables import Eligible


def hold_unload(
    move: Move,
    table: Eligible,
    circumstances: Circumstances,
    rules: Rules,
    *,
    split_rows: Collection[int] = (),
    is_proposed: bool = False,
) -> Hold | None:
    """Why an unload does not happen; if it may, ``rules`` count it, and it is None. Bundles of ``split_rows`` are split instead."""
    view, asking = table.view, circumstances.asking
    hold = (
        circumstances.holds.unload
        or _overlapping(table, view.bundles.names[move.row])
        or _split_instead(split_rows, move.row, circumstances.policy)
        or circumstances.calm.hold_of(float(view.brokers.usage_ratio[move.source]))
        or _too_little(view, circumstances.min_benefit_points, move)
        or _hold_of(rules.bars(move.row, move.destination))
        or (
            asking.hold(view.brokers.names[move.source], name_of(view, move.destination))
            if asking is not None and is_proposed
            else None
        )
        or _hold_of(rules.keeps(move.row))
    )
    if hold is None:
        rules.take(move.row, move.destination)
    return hold


def hold_leaving(row: int, circumstances: Circumstances, rules: Rules) -> Hold | None:
    """Why a bundle does not leave a drained broker, wherever it would go; ``row`` is that of the rules."""
    return circumstances.holds.unload or _hold_of(rules.keeps(row))


def _hold_of(forbidden: Forbidden | None) -> Hold | None:
    return None if forbidden is None else Hold(forbidden.rule, forbidden.detail)


def _split_instead(split_rows: Collection[int], row: int, policy: AnyPolicy) -> Hold | None:
    if row not in split_rows:
        return None
    if policy.plans_rounds:
        return Hold("split-instead", "it is split in this round, and its parts may move in a later one")
    return Hold("split-instead", "it is too big for any other broker and is split in this round")


def _overlapping(table: Eligible, bundle: str) -> Hold | None:
    if bundle not in table.overlapping:
        return None
    return Hold("overlapping", "its range overlaps others of its namespace, see the finding")


def _too_little(view: RoundView, min_benefit_points: float, move: Move) -> Hold | None:
    """Why a move is not worth the reconnects: it lowers usage too little."""
    if not min_benefit_points:
        return None
    points = 100.0 * float(view.brokers.usage_ratio[move.source]) * share_of(view, move)
    if points >= min_benefit_points:
        return None
    return Hold(
        "too-little-benefit",
        f"it would lower {view.brokers.names[move.source]} by {points:.3g} points, min_unload_benefit_points is "
        f"{min_benefit_points:g}",
    )
