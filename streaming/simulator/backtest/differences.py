"""Where candidates decided differently on the same recording, round by round, and why."""

import itertools
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from streaming.simulator.backtest.opened import Act, Opened, OpenRound, Why


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What one candidate did in a round in which others did something else."""

    candidate: str
    acts: list[Act]
    why_not: list[str]
    """For each action of the others that it did not decide, the reason."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A round that candidates decided differently."""

    cluster: str
    end_ms: int
    """End of the round; if the candidates' rounds differ in length, of the longest."""
    decisions: list[Decision]


def differences(runs: Sequence[Opened]) -> list[Difference]:
    """Rounds in which the actions of the candidates of one cluster differ, in order of time."""
    length_ms = max((_length_ms(run) for run in runs), default=1)
    by_time: dict[int, dict[str, list[OpenRound]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for each in run.rounds:
            by_time[-(-each.end_ms // length_ms) * length_ms][run.candidate].append(each)
    names = [run.candidate for run in runs]
    found = []
    for end_ms, rounds in sorted(by_time.items()):
        acts = {name: [act for each in rounds[name] for act in each.acts] for name in names}
        if len({frozenset(act.key for act in each) for each in acts.values()}) > 1:
            decisions = [_decision(name, acts, rounds[name]) for name in names]
            found.append(Difference(cluster=runs[0].cluster, end_ms=end_ms, decisions=decisions))
    return found


def _length_ms(run: Opened) -> int:
    """Shortest distance between two rounds."""
    ends = [each.end_ms for each in run.rounds]
    return min((later - sooner for sooner, later in itertools.pairwise(ends)), default=1)


def _decision(name: str, acts: dict[str, list[Act]], rounds: Sequence[OpenRound]) -> Decision:
    own = {act.key for act in acts[name]}
    missing = {act.key: act for each in acts.values() for act in each if act.key not in own}
    why = rounds[-1].unpack_reasons() if rounds else None
    return Decision(
        candidate=name,
        acts=acts[name],
        why_not=list(
            dict.fromkeys(_why_not(act, acts[name], why) for _, act in sorted(missing.items(), key=str))
        ),
    )


def _why_not(act: Act, own: Sequence[Act], why: Why | None) -> str:
    """What is known of a bundle, else of its broker, else of the round."""
    other = next((each for each in own if each.bundle == act.bundle), None)
    if other is not None:
        return f"{act.bundle}: {_describe_act(other)} instead"
    if why is None:
        return "no round ended here"
    for subject, rows in ((act.bundle, why.bundles), (act.source, why.pairs)):
        details = list(dict.fromkeys(detail for name, detail in rows if name == subject))
        if details:
            return f"{subject}: {', '.join(details)}"
    return why.reason


def _describe_act(act: Act) -> str:
    if act.kind == "split":
        return "is split"
    return f"goes to {act.destination or 'the broker that Pulsar chooses'}"
