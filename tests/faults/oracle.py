"""What a run is checked for: consumers saw what `trimtab replay` makes of the recorded log, each output once, unaltered.

Actions and summaries are compared cluster by cluster and in their order; dead letters carry their coordinates, so they
are compared by their bytes whatever their order. Epochs never fall along a topic: a superseded controller publishes nothing
after its successor.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.live.stage import Outputs

REJECTED = b'"type":"trimtab.rejected.v1"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Output of one controller's name, as consumers read it, or as it should be."""

    outputs: Outputs
    rejected: Sequence[bytes]
    epochs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The epochs on each topic, in its order."""


NOTHING = Seen(outputs=Outputs({}, {}), rejected=[])


def wanted_of(replayed: Sequence[bytes]) -> Seen:
    """Sort the lines of a replay."""
    return Seen(outputs=Outputs.of(replayed), rejected=[line for line in replayed if REJECTED in line])


def is_complete(seen: Seen, wanted: Seen) -> bool:
    """Whether as much is out as there should be; what is out may still be wrong."""
    return (
        seen.outputs.actions_count >= wanted.outputs.actions_count
        and seen.outputs.rounds_count >= wanted.outputs.rounds_count
        and len(seen.rejected) >= len(wanted.rejected)
    )


def differences(seen: Seen, wanted: Seen) -> list[str]:
    """What is wrong, a sentence each; empty where nothing is."""
    found = []
    for what, ours, theirs in (
        ("actions", seen.outputs.actions, wanted.outputs.actions),
        ("summaries", seen.outputs.rounds, wanted.outputs.rounds),
    ):
        for cluster in sorted({*ours, *theirs}):
            found += _compared(f"{what} of {cluster}", ours.get(cluster, []), theirs.get(cluster, []))
    found += _compared("dead letters", sorted(seen.rejected), sorted(wanted.rejected))
    found += [
        f"epochs on {topic} fall: {one} before {other}"
        for topic, epochs in seen.epochs.items()
        for one, other in pairwise(epochs)
        if other < one
    ]
    return found


def _compared(what: str, seen: Sequence[bytes], wanted: Sequence[bytes]) -> list[str]:
    """The differences between two sequences that should be equal."""
    ours, theirs = Counter(seen), Counter(wanted)
    found = []
    for name, values in (
        ("missing", theirs - ours),
        ("not in the replay", Counter(value for value in ours if value not in theirs)),
        (
            "seen again",
            Counter({value: n - theirs[value] for value, n in ours.items() if n > theirs[value] > 0}),
        ),
    ):
        if values:
            found.append(f"{what}: {values.total()} {name}, e.g. {next(iter(values))[:300]!r}")
    if not found and list(seen) != list(wanted):
        found.append(f"{what}: in another order than in the replay")
    return found
