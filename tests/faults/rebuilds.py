"""Takes what rebuilds may change in what consumers see out of both sides before the oracle compares them.

Only the first summary after a rebuild says so. On Pulsar a controller may end while it publishes a batch: the rest of it never
comes, the next summary names its rounds, and what follows is decided with what did come. From the first such round on there is nothing
to compare with, so it is only checked that summaries and actions agree and that nothing comes twice.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.faults import oracle
from tests.faults.oracle import Seen
from tests.live.stage import Outputs


def is_complete(seen: Seen, wanted: Seen) -> bool:
    """Whether as much is out as there should be, and the last round with it."""
    both = _comparable(seen, wanted)
    return both.has_last and oracle.is_complete(both.seen, both.wanted)


def differences(seen: Seen, wanted: Seen) -> list[str]:
    """What is wrong, a sentence each; empty where nothing is."""
    both = _comparable(seen, wanted)
    return [*both.problems, *oracle.differences(both.seen, both.wanted)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparable:
    """Both sides without what rebuilds change."""

    seen: Seen
    wanted: Seen
    problems: Sequence[str]
    """Where summaries and actions disagree."""
    has_last: bool
    """Whether the last round of each cluster is out, or is named as one that never comes."""


def _comparable(seen: Seen, wanted: Seen) -> _Comparable:
    cuts, problems, has_last = {}, [], True
    for cluster, values in wanted.outputs.rounds.items():
        due = {each["round"] for each in _data(values)}
        rounds = _data(seen.outputs.rounds.get(cluster, []))
        unpublished = {
            number for each in rounds for number in each.get("rebuilt", {}).get("unpublished_rounds", [])
        }
        numbers = {each["round"] for each in rounds}
        last = max(due)
        cuts[cluster] = min(unpublished, default=last + 1)
        has_last &= last in numbers | unpublished
        problems += _disagreements(cluster, rounds, seen.outputs.actions.get(cluster, []), due, unpublished)
    return _Comparable(
        seen=replace(seen, outputs=_before(cuts, seen.outputs)),
        wanted=replace(wanted, outputs=_before(cuts, wanted.outputs)),
        problems=problems,
        has_last=has_last,
    )


def _disagreements(
    cluster: str,
    rounds: Sequence[Mapping[str, Any]],
    actions: Sequence[bytes],
    due: set[int],
    unpublished: set[int],
) -> list[str]:
    """Each round of the replay has one summary or is named as unpublished; each other action is in the summary of its round, once."""
    problems = []
    numbers = [each["round"] for each in rounds]
    if numbers != sorted(set(numbers)):
        problems.append(f"summaries of {cluster}: not one for each round, in order")
    if missing := due - {*numbers} - unpublished:
        problems.append(
            f"summaries of {cluster}: rounds {sorted(missing)} have none, and no summary says why"
        )
    sent = [json.loads(value) for value in actions]
    if len(sent) != len({each["id"] for each in sent}):
        problems.append(f"actions of {cluster}: one came twice")
    named = [name for each in rounds for name in each.get("actions", [])]
    if [each["id"] for each in sent if each["data"]["round"] not in unpublished] != named:
        problems.append(f"actions of {cluster}: not those that the summaries name, in their order")
    return problems


def _before(cuts: Mapping[str, int], outputs: Outputs) -> Outputs:
    """Outputs before each cluster's round in ``cuts``; summaries without the mark of a rebuild, and without their id, which is a hash."""
    return Outputs(
        actions={
            cluster: [value for value in values if json.loads(value)["data"]["round"] < cuts[cluster]]
            for cluster, values in outputs.actions.items()
        },
        rounds={
            cluster: [_plain(value) for value in values if _data([value])[0]["round"] < cuts[cluster]]
            for cluster, values in outputs.rounds.items()
        },
    )


def _plain(value: bytes) -> bytes:
    message = json.loads(value)
    del message["id"]
    message["data"].pop("rebuilt", None)
    return json.dumps(message).encode()


def _data(values: Sequence[bytes]) -> list[dict[str, Any]]:
    return [json.loads(value)["data"] for value in values]
