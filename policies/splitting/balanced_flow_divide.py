"""``balanced_flow_divide``: the fewest cuts that bring every child well below the limits, the heaviest child as light as possible.

Our own, because Pulsar's four algorithms do not look at load, or fill children up to the limit. The weight of a child is the
larger of its rate and its throughput, each as a share of the bundle's limit. This also does what PIP-143 asks for, bundles of
their own for outstanding partitions: a topic that alone reaches ``max_child_ratio`` gets its own bundle, and the rest is balanced.

Every boundary separates topics: ``(a + b + 1) // 2`` is above a and at most b. Topics at one position stay together, and
so do 0xfffffffe and 0xffffffff, between which Pulsar takes no boundary. A topic without load stays with the one before it.
The result is optimal up to ``TIE_RATIO``, for at most 500 boundaries. Known to do badly: it believes the statistics of
the moment; and it gives several boundaries at once, which Pulsar's extensible load manager refuses unless they are sent one by one.

Loads have several measures, each a share of its limit; a part weighs what its largest measure weighs. Since loads are
0 or more, a part only gets heavier as it grows: so the fewest parts under a bound come from filling each as far as it
goes, and the smallest bound that a number of parts can keep is found by bisection.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from policies.columns import Floats, Ints
from policies.splitting.cut import Cut, SplitQuestion, cut_at, no_cut

TIE_RATIO = 1e-9
"""Loads closer than this are the same: it is far below the precision of any measured rate, and far above the rounding of sums."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadRow:
    """n loads in order, none negative, as running sums."""

    sums: tuple[Sequence[float], ...]
    """For each measure a list of n + 1 running sums, in the measure's own unit: whole numbers stay exact."""
    limits: tuple[float, ...]
    """What a weight of 1.0 is in each measure, above 0."""
    ratios: Floats
    """Weight of each load alone, (n,)."""

    def __len__(self) -> int:
        return len(self.ratios)

    def weight(self, start: int, end: int) -> float:
        """Weight of the loads ``start:end`` as one part."""
        return max(
            (sums[end] - sums[start]) / limit for sums, limit in zip(self.sums, self.limits, strict=True)
        )


def load_row(measures: Floats, limits: Sequence[float]) -> LoadRow:
    """Makes the row from loads, (measures, n), and the limit of each measure."""
    sums = np.concatenate([np.zeros((len(measures), 1)), np.cumsum(measures, axis=1)], axis=1)
    ratios = (measures / np.array(limits)[:, None]).max(axis=0)
    return LoadRow(tuple(column.tolist() for column in sums), tuple(limits), ratios)


def fill(row: LoadRow, start: int, end: int, *, bound: float, most_cuts: int | None = None) -> list[int]:
    """Inner cuts that make the fewest parts of ``start:end`` where only a single load may be above ``bound``.

    It gives up after one cut more than ``most_cuts``.
    """
    measures = [(sums, bound * limit) for sums, limit in zip(row.sums, row.limits, strict=True)]
    cuts: list[int] = []
    at, length = start, 1
    while True:
        reach = end
        for sums, most in measures:
            reach = _find_last_fit(sums, sums[at] + most, at, reach, length)
        reach = max(reach, at + 1)
        if reach >= end:
            return cuts
        at, length = reach, reach - at
        cuts.append(at)
        if most_cuts is not None and len(cuts) > most_cuts:
            return cuts


def _find_last_fit(sums: Sequence[float], most: float, at: int, end: int, length: int) -> int:
    """The last place up to ``end`` whose sum is at most ``most``; ``length`` guesses how far it is from ``at``.

    Parts of one row are about equally long, and a search nearby touches a few sums instead of seventeen all over memory.
    """
    low, high = at, at + length
    while high < end and sums[high] <= most:
        length *= 2
        low, high = high, high + length
    return bisect_right(sums, most, low + 1, min(high, end) + 1) - 1


def find_lightest_cuts(row: LoadRow, start: int, end: int, *, most_cuts: int) -> list[int]:
    """At most ``most_cuts`` inner cuts of ``start:end``: the heaviest part is as light as possible, then the cuts as few as possible.

    Exact up to ``TIE_RATIO``; takes up to thirty times as long as one ``fill``. A bound that was too small rises at once to
    the least that lets some part take one load more, because nothing changes below it.
    """
    whole, single = row.weight(start, end), float(row.ratios[start:end].max())
    low = max(whole / (most_cuts + 1), single)
    high = min(whole, whole / (most_cuts + 1) * len(row.limits) + single) * (1 + TIE_RATIO)
    cuts = fill(row, start, end, bound=low * (1 + TIE_RATIO), most_cuts=most_cuts)
    if len(cuts) <= most_cuts:
        return cuts
    while high > low * (1 + TIE_RATIO):
        middle = (low + high) / 2
        cuts = fill(row, start, end, bound=middle, most_cuts=most_cuts)
        if len(cuts) > most_cuts:
            low = max(middle, min(row.weight(at, cut + 1) for at, cut in pairwise([start, *cuts])))
        else:
            high = weight_of_heaviest(row, start, end, cuts)
    return fill(row, start, end, bound=high * (1 + TIE_RATIO))


def weight_of_heaviest(row: LoadRow, start: int, end: int, cuts: Sequence[int]) -> float:
    """Weight of the heaviest part of ``start:end`` after these cuts."""
    edges = [start, *cuts, end]
    return max(
        max(high - low for low, high in pairwise([sums[edge] for edge in edges])) / limit
        for sums, limit in zip(row.sums, row.limits, strict=True)
    )


BALANCED_FLOW_DIVIDE = "balanced_flow_divide"

_SHOWN_TOPICS = 3
_BALANCED_CUTS_MOST = 500
"""Most boundaries for which the children are balanced as well: four times the bundles that a namespace may have in Pulsar.
Above it, children are only filled one after the other, because to balance 100,000 topics would take seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class _Atoms:
    """n atoms: groups of topics with load that no boundary may divide, or has to divide."""

    loads: LoadRow
    firsts: Ints
    """Row of each atom's first topic, (n,); an atom ends at the row before the next one's first topic."""
    boundaries: Ints
    """The boundary before each, (n,); the one before the first is meaningless."""

    def __len__(self) -> int:
        return len(self.firsts)


def balanced_flow_divide(question: SplitQuestion) -> Cut:
    """Boundaries that balance; none where nothing has to be or can be divided. Raises ``ValueError`` for a count below 1."""
    for name in ("boundaries_count", "max_boundaries_count"):
        count = getattr(question, name)
        if count is not None and count < 1:
            raise ValueError(f"{name} is {count}; expected 1 or more")
    atoms = _atoms(question)
    if len(atoms) == 0:
        return no_cut("no topic in the bundle has traffic: there is nothing to balance")
    if len(atoms) == 1:
        return no_cut(f"{_names(question, atoms, 0)} carries the whole load: a split cannot help")
    row, whole = atoms.loads, atoms.loads.weight(0, len(atoms))
    cuts, alone, note = _choose(question, row)
    before = f"the bundle is at {whole:.2f} of its limits"
    if not cuts:
        return no_cut(f"{before}, {note}")
    after = weight_of_heaviest(row, 0, len(row), cuts)
    parts = [f"{before}, the heaviest of {len(cuts) + 1} children at {after:.2f}"]
    parts.extend(
        f"{_names(question, atoms, atom)} alone is at {row.ratios[atom]:.2f} and stands by itself"
        for atom in alone[:_SHOWN_TOPICS]
    )
    if len(alone) > _SHOWN_TOPICS:
        parts.append(f"so do {len(alone) - _SHOWN_TOPICS} more")
    if note:
        parts.append(note)
    return cut_at(question, atoms.boundaries[cuts].tolist(), "; ".join(parts))


def _choose(question: SplitQuestion, row: LoadRow) -> tuple[list[int], list[int], str]:
    """Cuts between atoms, the atoms that stand by themselves because they are too heavy, and a note for the reason."""
    wanted, most = question.boundaries_count, question.max_boundaries_count
    if wanted is not None:
        allowed = wanted if most is None else min(wanted, most)
        cuts = find_lightest_cuts(row, 0, len(row), most_cuts=allowed)
        return cuts, [], "" if cuts else "which its heaviest topic alone reaches: a split cannot help"
    bound = question.max_child_ratio * (1 - TIE_RATIO)
    if row.weight(0, len(row)) <= bound:
        return [], [], f"below max_child_ratio {question.max_child_ratio:g}: no split is needed"
    cuts, alone = _find_fewest_cuts(row, bound)
    if most is None or len(cuts) <= most:
        return cuts, alone, ""
    note = f"{len(cuts)} boundaries would be needed and {most} {'is' if most == 1 else 'are'} allowed"
    return find_lightest_cuts(row, 0, len(row), most_cuts=most), [], note


def _find_fewest_cuts(row: LoadRow, bound: float) -> tuple[list[int], list[int]]:
    """Cuts after which only single atoms are above ``bound``, and those atoms."""
    alone = np.flatnonzero(row.ratios > bound).tolist()
    edges = sorted({0, len(row), *alone, *(atom + 1 for atom in alone)})
    filled = [fill(row, start, end, bound=bound) if end - start > 1 else [] for start, end in pairwise(edges)]
    cuts_count = sum(map(len, filled)) + len(edges) - 2
    if cuts_count <= _BALANCED_CUTS_MOST:
        filled = [
            find_lightest_cuts(row, start, end, most_cuts=len(cuts)) if cuts else cuts
            for cuts, (start, end) in zip(filled, pairwise(edges), strict=True)
        ]
    return sorted({*edges[1:-1], *(cut for cuts in filled for cut in cuts)}), alone


def _atoms(question: SplitQuestion) -> _Atoms:
    topics, limits = question.topics, question.limits
    measures = np.array([topics.messages_per_s, topics.bytes_per_s])
    shares = [limits.messages_per_s, limits.bytes_per_s]
    if limits.topics_count is not None:
        measures = np.vstack([measures, np.ones(len(topics))])
        shares.append(limits.topics_count)
    if limits.sessions_count is not None:
        measures = np.vstack([measures, topics.sessions])
        shares.append(limits.sessions_count)
    where = topics.positions
    boundaries = np.zeros_like(where)
    boundaries[1:] = (where[:-1] + where[1:] + 1) // 2
    begins = np.ones(len(topics), dtype=np.bool_)
    begins[1:] = (where[1:] > where[:-1]) & (boundaries[1:] < question.range.upper)
    together = np.flatnonzero(begins)
    sums = np.add.reduceat(measures, together, axis=1) if len(together) else measures
    loaded = (sums > 0).any(axis=0)
    firsts = together[loaded]
    row = load_row(sums[:, loaded], shares)
    return _Atoms(row, firsts, boundaries[firsts])


def _names(question: SplitQuestion, atoms: _Atoms, atom: int) -> str:
    """The topics with load in one atom, by name."""
    topics = question.topics
    end = int(atoms.firsts[atom + 1]) if atom + 1 < len(atoms) else len(topics)
    rows = range(int(atoms.firsts[atom]), end)
    measures = (topics.messages_per_s, topics.bytes_per_s, topics.sessions)
    loaded = [at for at in rows if any(measure[at] > 0 for measure in measures)]
    names = [topics.names[at] for at in loaded or rows]
    more = f" and {len(names) - _SHOWN_TOPICS} more at one position" if len(names) > _SHOWN_TOPICS else ""
    return " and ".join(names[:_SHOWN_TOPICS]) + more
