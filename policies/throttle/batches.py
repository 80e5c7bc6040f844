"""Copies in batches, one after the other: no batch needs more of the network than all at once.

Together they mostly take longer, because the rate of a batch follows from its own, lower minimum, and the brokers that it does not
touch are idle. At one given rate they are mostly quicker: less of it goes to what producers write. A deadline holds for all batches
together. Use batches when the whole does not fit under the cap.

The packing is greedy, with the largest minimum first, so it may need a batch more than the best packing would.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.columns import Ints
from policies.throttle.copies import DISK, LARGEST_NUMBER, RECOVERY, UNKNOWN, Copies
from policies.throttle.needs import followers_of, known_needs_of, needs_of
from policies.throttle.rates import Load, RateRule, UniformPlan, ceil_ratio, loads_of, uniform_plan
from policies.wording import counted

LARGEST_SUM = 1 << 62
"""Batches add needs up in int64; no real cluster needs more than this together."""


class CannotBatch(ValueError):
    """No batches can be made; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """One batch of several, with the uniform plan of its own moves."""

    copies: Copies
    plan: UniformPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Batches in the order they run."""

    batches: tuple[Batch, ...]
    total_s: float | None
    """All durations added; None when one of them is unknown or never ends."""
    total_at_cap_s: float | None
    """The same with every batch at the cap; None without a cap too."""

    @property
    def ends(self) -> bool:
        """Whether each batch ends."""
        return all(batch.plan.plan.feasible for batch in self.batches)


def in_no_batch(copies: Copies) -> dict[int, str]:
    """The rows that cannot go in a batch, with the reason and what to do."""
    unfit = (
        (
            copies.of_kind(RECOVERY).rows,
            "its broker fetches all that it missed at once, so it is in no batch; plan it without batches",
        ),
        (
            copies.of_kind(DISK).rows,
            "a broker makes batches of its moves between disks itself, so it is in no batch; plan it without batches",
        ),
        (
            np.flatnonzero(copies.write_bytes_per_s == UNKNOWN),
            "its write rate is unknown, so nobody can tell what a batch with it needs; give write_bytes_per_s",
        ),
    )
    return {row: reason for rows, reason in unfit for row in rows.tolist()}


def batches_of(copies: Copies, rule: RateRule, *, count: int | None) -> BatchPlan:
    """``count`` batches; with None, as few as the packing finds that each need less than the cap. Raises ``CannotBatch``.

    A batch fits when its largest minimum with headroom is at most the cap; a single partition that does not fit with its
    headroom is a batch of its own. With ``count``, the needs of the batches are as equal as possible; none is empty. No copy may be
    one that is ``in_no_batch``.
    """
    needs = _needs_table(copies)
    cap = rule.caps.default_bytes_per_s
    if count is None:
        if cap is None:
            raise CannotBatch("batches cannot be counted without a cap: give a cap, or the number of batches")
        places = _assign(needs, _choose_first_that_fits(needs, _room(cap, rule)))
    else:
        if not 1 <= count <= max(len(copies), 1):
            raise CannotBatch(
                f"{counted(len(copies), 'moving partition')} cannot go in {count} batches; expected "
                f"{f'1 to {len(copies)}' if len(copies) > 1 else 'a single one'}"
            )
        places = _assign(needs, _choose_least_loaded(needs, count))
    parts = [copies.take(places == number) for number in np.unique(places).tolist()]
    loads = [loads_of(needs_of(part), known_needs_of(part)) for part in parts]
    plans = _plans_in_time(loads, rule)
    at_cap = None if cap is None else _plans(loads, RateRule(fixed_bytes_per_s=cap))
    return BatchPlan(
        batches=tuple(Batch(copies=part, plan=plan) for part, plan in zip(parts, plans, strict=True)),
        total_s=_total_s(plans),
        total_at_cap_s=None if at_cap is None else _total_s(at_cap),
    )


def _plans_in_time(loads: Sequence[tuple[Load, ...]], rule: RateRule) -> list[UniformPlan]:
    """With the lowest floor at which all batches together keep the deadline; at the cap if none does."""
    if rule.deadline_s is None or any(load.bytes_left is None for batch in loads for load in batch):
        return _plans(loads, rule)

    def plans_at(floor: int) -> list[UniformPlan]:
        return _plans(loads, replace(rule, deadline_s=None, floor_bytes_per_s=floor))

    def is_in_time(floor: int) -> bool:
        return rule.is_in_time(_total_s(plans_at(floor)), ends=True) is True

    least = rule.floor_bytes_per_s
    floors = range(least, rule.caps.default_bytes_per_s or LARGEST_NUMBER)
    return plans_at(least + bisect_left(floors, True, key=is_in_time))


def _plans(loads: Sequence[tuple[Load, ...]], rule: RateRule) -> list[UniformPlan]:
    return [uniform_plan(batch, rule) for batch in loads]


def _total_s(plans: list[UniformPlan]) -> float | None:
    total = 0.0
    for plan in plans:
        if plan.plan.total_s is None:
            return None
        total += plan.plan.total_s
    return total


def _room(cap: int, rule: RateRule) -> int:
    """The largest minimum whose rate, with headroom, is at most the cap and above the minimum."""
    room = (
        cap
        * rule.headroom_ratio.denominator
        // (rule.headroom_ratio.numerator + rule.headroom_ratio.denominator)
    )
    return min(room if ceil_ratio(room, 1 + rule.headroom_ratio) <= cap else room - 1, cap - 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _NeedsTable:
    """How much each partition needs from each role of each broker."""

    roles: tuple[Ints, ...]
    """For each partition, the columns of the roles that it needs something from."""
    needs: tuple[Ints, ...]
    """How much it needs from each, bytes/s."""
    heaviest_first: Ints
    """Rows by their largest need, ties in order."""
    roles_count: int


def _needs_table(copies: Copies) -> _NeedsTable:
    followers = followers_of(copies)
    if sum(copies.write_bytes_per_s.tolist()) * int(followers.max(initial=0)) >= LARGEST_SUM:
        raise CannotBatch(
            f"the moving partitions need {LARGEST_SUM} bytes/s or more together; check their write rates"
        )
    led = np.flatnonzero(copies.is_led() & copies.is_replicated())
    to = copies.destinations
    rows = np.concatenate([led, to.rows])
    roles = np.concatenate([copies.leader[led] * 2, to.brokers * 2 + 1])
    need = np.concatenate([(copies.write_bytes_per_s * followers)[led], copies.write_bytes_per_s[to.rows]])
    known, columns = np.unique(roles, return_inverse=True)
    order = np.argsort(rows, kind="stable")
    cuts = np.searchsorted(rows[order], np.arange(1, len(copies)))
    largest = np.zeros(len(copies), dtype=np.int64)
    np.maximum.at(largest, rows, need)
    return _NeedsTable(
        roles=tuple(np.split(columns[order], cuts)) if len(copies) else (),
        needs=tuple(np.split(need[order], cuts)) if len(copies) else (),
        heaviest_first=np.argsort(-largest, kind="stable"),
        roles_count=len(known),
    )


Choice = Callable[[int], int]
"""Chooses the batch of a row; called once for each row, the heaviest first."""


def _assign(needs: _NeedsTable, choose: Choice) -> Ints:
    places = np.zeros(len(needs.roles), dtype=np.int64)
    for row in needs.heaviest_first.tolist():
        places[row] = choose(row)
    return places


def _choose_first_that_fits(needs: _NeedsTable, room: int) -> Choice:
    loads = np.zeros((8, needs.roles_count), dtype=np.int64)
    opened = 0

    def choose(row: int) -> int:
        nonlocal loads, opened
        roles, need = needs.roles[row], needs.needs[row]
        fits = (loads[:opened, roles] + need <= room).all(axis=1)
        place = int(fits.argmax()) if fits.any() else opened
        opened = max(opened, place + 1)
        if opened > len(loads):
            loads = np.concatenate([loads, np.zeros_like(loads)])
        loads[place, roles] += need
        if need.max(initial=0) > room:
            loads[place] = room + 1  # nothing joins a partition that does not fit by itself
        return place

    return choose


def _choose_least_loaded(needs: _NeedsTable, count: int) -> Choice:
    loads = np.zeros((count, needs.roles_count), dtype=np.int64)
    sizes = np.zeros(count, dtype=np.int64)

    def choose(row: int) -> int:
        roles, need = needs.roles[row], needs.needs[row]
        after = (loads[:, roles] + need).max(axis=1)
        place = int(np.lexsort((sizes, after))[0])
        loads[place, roles] += need
        sizes[place] += 1
        return place

    return choose
