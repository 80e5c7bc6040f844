"""What a run is checked for: consumers saw what `trimtab replay` makes of the recorded log, each output once, unaltered.

Actions and summaries are compared cluster by cluster and in their order; dead letters carry their coordinates, so they
are compared by their bytes whatever their order. Epochs never fall along a topic: a superseded controller publishes nothing
after its successor. Executors answer each action, do it once, and do not try it after its expiry.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from tests.support.pulsar import CLUSTER
from tests.support.stage import Outputs

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


_RESULT = "trimtab.action-result.v1"
_CLOCK_S = 1.0
"""Results carry the time they were written, so this is what writing them may take."""


def unanswered(actions: Sequence[bytes], records: Sequence[bytes]) -> list[str]:
    """Actions of the real cluster without a result on the input topic."""
    results = _results(records)
    return [f"action {id_} was never answered" for id_ in _actions(actions) if id_ not in results]


def misdone(actions: Sequence[bytes], records: Sequence[bytes]) -> list[str]:
    """What no executor may have done."""
    found, results = [], _results(records)
    for id_, action in _actions(actions).items():
        given = results.get(id_, [])
        tried = [each for each in given if each["data"]["outcome"] != "skipped"]
        done = [each for each in tried if not each["data"].get("done_before")]
        if len({each["time"] for each in done if each["data"]["outcome"] == "succeeded"}) > 1:
            found.append(f"action {id_} was carried out {len(done)} times: {done}"[:500])
        expires_s = _seconds(action["data"]["expires_at"])
        found += [
            f"action {id_} was tried {began_s - expires_s:.1f} s after its expiry"
            for each in done
            if (began_s := _seconds(each["time"]) - (each["data"].get("duration_s") or 0.0))
            > expires_s + _CLOCK_S
        ]
    return found


def _actions(values: Sequence[bytes]) -> dict[str, dict[str, Any]]:
    events = [json.loads(value) for value in values]
    return {event["id"]: event for event in events if event["cluster"] == CLUSTER}


def _results(values: Sequence[bytes]) -> dict[str, list[dict[str, Any]]]:
    """Results by action; the input topic also holds records that are no JSON."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for value in values:
        if f'"{_RESULT}"'.encode() in value:
            event = json.loads(value)
            if event["cluster"] == CLUSTER:
                found[event["subject"]].append(event)
    return dict(found)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
