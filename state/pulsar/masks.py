"""Which bundles may be touched: every mask of a round is painted here, before the policies run.

A mask only removes candidates, and gives a typed reason. A bundle has one reason; if several hold, it is the first of these: a
decision in flight, an action without effect, a cooldown (which says so where no executor confirmed the action), a rejected
proposal, a range that overlaps others, a namespace that is excluded or under maintenance, its absence from the report of its
owner, missing samples. Reasons that concern its broker or its group come last, and so do bundles of this program's own topics: moving one disturbs the program itself, and moves next to no
load. Such a bundle is masked only while those topics carry at least half of its traffic, in messages and in bytes; with the
default names they lie beside users' topics, and a bundle that users make hot may move. The rates of the topics are as old as the
collector's last look, those of the bundles are running averages.
"""

from collections.abc import Collection, Iterable
from enum import IntEnum, auto
from itertools import repeat

import numpy as np

from policies.columns import Bools, Codes, Ints
from state.events import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT
from state.facts import Facts
from state.ledger import ActionKind
from state.pulsar.listings import find
from state.pulsar.memory import Fleet
from state.pulsar.overlaps import members_of
from state.pulsar.view import RoundContext

_SHARE_RATIO = 0.5


def carries_trimtab_topics(fleet: Fleet, count: int, facts: Facts | None) -> Bools:
    """Which of the fleet's leading ``count`` bundles carry little but this program's own topics, (count,)."""
    carries = np.zeros(count, dtype=np.bool_)
    if facts is None or not facts.trimtab_topics:
        return carries
    trimtab_topics = facts.trimtab_topics
    named = np.fromiter(map(trimtab_topics.__contains__, fleet.bundles[:count]), dtype=np.bool_, count=count)
    for row in np.flatnonzero(named).tolist():
        messages, volume = trimtab_topics[fleet.bundles[row]]
        average = fleet.averages[row]
        carries[row] = (
            messages + volume > 0
            and messages >= _SHARE_RATIO * (average[RATE_IN] + average[RATE_OUT])
            and volume >= _SHARE_RATIO * (average[THROUGHPUT_IN] + average[THROUGHPUT_OUT])
        )
    return carries


class Mask(IntEnum):
    """Why a bundle may not be moved or split: the codes of a mask. The last one is a reason for splits alone."""

    OPEN = 0
    IN_FLIGHT = auto()
    COOLDOWN = auto()
    EXCLUDED_NAMESPACE = auto()
    NO_SAMPLES = auto()
    INEFFECTIVE = auto()
    OTHER_GROUP = auto()
    UNSETTLED_BROKER = auto()
    TRIMTAB_TOPICS = auto()
    MAINTENANCE = auto()
    REJECTED = auto()
    ABSENT = auto()
    OVERLAPPING = auto()
    NOT_CONFIRMED = auto()
    TO_BE_UNLOADED = auto()


SPLIT_MASK_REASONS = tuple("" if each is Mask.OPEN else each.name.lower().replace("_", "-") for each in Mask)
"""Why a bundle may not be split, by code; the empty one means that it may."""
MASK_REASONS = SPLIT_MASK_REASONS[: Mask.TO_BE_UNLOADED]
"""Why a bundle is not movable, by code."""
SPLIT_MASK_OUTCOMES = tuple(
    SPLIT_MASK_REASONS[each]
    for each in Mask
    if each not in (Mask.OPEN, Mask.OTHER_GROUP, Mask.UNSETTLED_BROKER, Mask.TRIMTAB_TOPICS)
)
"""The reasons that a split can have; one for its broker's relief is not wanted where ``stays``."""


def unload_mask(context: RoundContext, unsettled: Collection[str]) -> Codes:
    """Code of ``MASK_REASONS`` for an unload of each of the fleet's leading bundles, (owned,).

    A bundle rests after an unload of its own, while a split of it is in flight, and after an action without effect. Ranges that overlap
    are held after Pulsar's policies (``state.pulsar.admission``), which choose on the reports as they are.
    """
    fleet, count = context.fleet, context.advanced.owned_count
    codes = _paint(
        context,
        "unload",
        fleet.samples[:count],
        overlapping=members_of(context.advanced.overlaps) if context.pulsar.policy.plans_rounds else (),
    )
    is_unsettled = np.array([name in unsettled for name in fleet.brokers], dtype=np.bool_)
    for reason, rows in (
        (Mask.OTHER_GROUP, context.groups.foreign(fleet, count)),
        (Mask.TRIMTAB_TOPICS, carries_trimtab_topics(fleet, count, context.facts)),
        (Mask.UNSETTLED_BROKER, is_unsettled[fleet.owner[:count]]),
    ):
        codes[(codes == Mask.OPEN) & rows] = reason
    return codes


def stays(codes: Codes) -> Bools:
    """Which bundles of an unload mask no policy may ever move, nor parts of them while things are as they are."""
    return np.isin(codes, (Mask.OTHER_GROUP, Mask.TRIMTAB_TOPICS))


def split_mask(context: RoundContext) -> Codes:
    """The same for a split: a bundle rests after a split of its own, and while an unload of it is in flight."""
    samples = context.fleet.split_samples[: context.advanced.owned_count]
    return _paint(context, "split", samples, overlapping=members_of(context.advanced.overlaps))


def keep_from_splits(codes: Codes, *, acting: Collection[int], leaving: Collection[int]) -> Codes:
    """The mask of splits after the unloads of the round were chosen, by bundle row of the view.

    Bundles of approved actions (``acting``) are in flight. One that the policy wants to move (``leaving``) is not split as well.
    """
    painted = codes.copy()
    painted[list(acting)] = Mask.IN_FLIGHT
    wanted = list(leaving)
    painted[wanted] = np.where(painted[wanted] == Mask.OPEN, Mask.TO_BE_UNLOADED, painted[wanted])
    return painted


def drain_mask(context: RoundContext) -> Codes:
    """The same for an unload that empties its broker: no cooldown holds it, nor does anything that concerns its broker or load.

    Of ranges that overlap, the finer ones count, and those of them with traffic may leave.
    """
    codes = np.where(context.advanced.is_absent, Mask.ABSENT, Mask.OPEN).astype(np.int8)
    _paint_namespaces(codes, context)
    fleet, overlaps = context.fleet, context.advanced.overlaps
    finer = find(fleet.bundles[: len(codes)], members_of(overlaps) - overlaps.keys())
    busy = {fleet.bundles[row] for row in finer.tolist() if fleet.averages[row].any()}
    _paint_bundles(
        codes,
        fleet,
        (Mask.OVERLAPPING, members_of(overlaps) - busy),
        (
            Mask.INEFFECTIVE,
            context.ledger.ineffective(context.guards.ineffective_rest_s, end_ms=context.end_ms),
        ),
        (Mask.IN_FLIGHT, context.ledger.awaited_bundles(end_ms=context.end_ms)),
    )
    return codes


def unsettled_brokers(context: RoundContext) -> frozenset[str]:
    """Brokers that wait for an unload of theirs to show in the reports, with ``hold_unsettled_brokers``.

    A policy that compares loads from before a move wants the same move again, with other bundles: the brokers swap places,
    and the cooldown then keeps them there. Such a broker is neither source nor destination from the decision of an unload it
    takes part in until the reports show the bundle at another broker, nor in the round that first shows it: for one stats
    period both brokers list the bundle, and the new owner's rates are noise. A failed, skipped or expired action changed
    nothing, so it holds no broker; an action without effect holds its brokers only until it is judged. Destinations that
    Pulsar chose are not known, so they are not held. Unloads of a dry-run hold no broker, because nothing is on its way.
    """
    if not context.guards.hold_unsettled_brokers:
        return frozenset()
    return context.ledger.unsettled_brokers(end_ms=context.end_ms)


def _paint(context: RoundContext, kind: ActionKind, samples: Ints, *, overlapping: Collection[str]) -> Codes:
    """The reasons that do not depend on the group or broker: samples, namespaces, and decisions about the bundle itself."""
    pulsar, ledger, end_ms = context.pulsar, context.ledger, context.end_ms
    codes = np.where(samples == 0, Mask.NO_SAMPLES, Mask.OPEN).astype(np.int8)
    codes[context.advanced.is_absent] = Mask.ABSENT
    _paint_namespaces(codes, context)
    resting = ledger.resting(kind, pulsar, end_ms=end_ms)
    other_resting = ledger.resting("split" if kind == "unload" else "unload", pulsar, end_ms=end_ms)
    _paint_bundles(
        codes,
        context.fleet,
        (Mask.OVERLAPPING, overlapping),
        (Mask.REJECTED, context.header.rejected),
        (Mask.COOLDOWN, resting.cooling),
        (Mask.NOT_CONFIRMED, resting.unconfirmed),
        (Mask.INEFFECTIVE, ledger.ineffective(pulsar.guards.ineffective_rest_s, end_ms=end_ms)),
        (Mask.IN_FLIGHT, resting.in_flight | other_resting.in_flight),
    )
    return codes


def _paint_namespaces(codes: Codes, context: RoundContext) -> None:
    fleet, resting = context.fleet, context.closing.overlay.maintenance_namespaces
    for reason, named in (
        (Mask.MAINTENANCE, resting),
        (Mask.EXCLUDED_NAMESPACE, context.guards.excluded_namespaces),
    ):
        if named:
            rows = np.array([name in named for name in fleet.namespaces], dtype=np.bool_)
            codes[rows[fleet.namespace[: len(codes)]]] = reason


def _paint_bundles(codes: Codes, fleet: Fleet, *named: tuple[int, Iterable[str]]) -> None:
    """Paint reasons on the bundles they are given with, a later one over an earlier one, in one pass over the fleet."""
    reasons: dict[str, int] = {}
    for reason, names in named:
        reasons |= dict.fromkeys(names, reason)
    if reasons:
        painted = map(reasons.get, fleet.bundles[: len(codes)], repeat(Mask.OPEN))
        new_codes = np.fromiter(painted, dtype=np.int8, count=len(codes))
        np.copyto(codes, new_codes, where=new_codes != Mask.OPEN)
