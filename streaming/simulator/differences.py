"""What a backtest found: how much each candidate decided, where they differ and why, and which of them did better."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from policies.wording import counted, time_text
from state.outputs import rfc3339
from streaming.simulator.backtest import REFERENCES, Act, Opened, OpenRound, Why
from streaming.simulator.score import BALANCED_POINTS, COLUMNS, Figures, Run, card


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


_NOT_KNOWN = {"disrupted_messages", "recovery_rounds"}
"""Figures that a recording does not show: how long clients wait, and when a disturbance began."""
RECORDED_COLUMNS = tuple(each for each in COLUMNS if each.key not in _NOT_KNOWN)
NOTE = (
    f"A cluster is balanced while the hottest and the coldest broker are at most {BALANCED_POINTS:g} points apart, as they report it: "
    "the noise of their figures is included, the same for every candidate. Every candidate acts, whatever its mode."
)


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """How much a candidate decided in the open loop."""

    cluster: str
    candidate: str
    rounds_count: int
    unloads_count: int
    splits_count: int
    rejected_count: int
    """Events that its controller refused."""


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backtest found."""

    sources: str
    """What was read, in one sentence."""
    clusters: list[str]
    closed: list[Run]
    decided: list[Decided]
    differences: list[Difference]


def backtest_of(
    sources: str, clusters: Sequence[str], closed: Sequence[Run], opened: Sequence[Opened]
) -> Backtest:
    """Both loops together, cluster by cluster."""
    return Backtest(
        sources=sources,
        clusters=list(clusters),
        closed=list(closed),
        decided=[_count_decided(each) for each in opened],
        differences=[
            each
            for cluster in clusters
            for each in differences([run for run in opened if run.cluster == cluster])
        ],
    )


def _count_decided(run: Opened) -> Decided:
    kinds = [act.kind for each in run.rounds for act in each.acts]
    return Decided(
        cluster=run.cluster,
        candidate=run.candidate,
        rounds_count=len(run.rounds),
        unloads_count=kinds.count("unload"),
        splits_count=kinds.count("split"),
        rejected_count=run.rejected_count,
    )


def verdict(rows: dict[str, Figures]) -> str:
    """Which candidate is better: the one that leaves the cluster unbalanced for less of the time.

    If two are equal in that, the one with the smaller spread, in whole points, is better; then the one that moves less.
    """
    ranked = sorted((name for name in rows if name not in REFERENCES), key=lambda name: _rank(rows[name]))
    told = "; ".join(
        _describe_figures(name, rows[name])
        for name in [*ranked, *(name for name in rows if name in REFERENCES)]
    )
    if len(ranked) < 2:  # noqa: PLR2004  two candidates
        return f"{told}."
    best, second = (_rank(rows[name]) for name in ranked[:2])
    ground = next((text for text, a, b in zip(_GROUNDS, best, second, strict=True) if a != b), None)
    if ground is None:
        return f"{ranked[0]} and {ranked[1]} do equally well. {told}."
    return f"{ranked[0]} is better: {ground}. {told}."


_GROUNDS = (
    "the cluster is unbalanced for less of the time",
    "the cluster is unbalanced for as long, with its brokers closer together",
    "the cluster is as balanced, with less traffic moved",
)


def _rank(figures: Figures) -> tuple[float, float, float]:
    return (
        round(figures["unbalanced_percent"] or 0.0, 1),
        round(figures["spread_points"] or 0.0),
        figures["moved_percent"] or 0.0,
    )


def _describe_figures(name: str, figures: Figures) -> str:
    unloads, splits = figures["unloads"] or 0, figures["splits"] or 0
    decided = [(unloads, "unload"), *([(splits, "split")] if splits else [])]
    acts = " and ".join(f"{count:g} {noun}{'' if count == 1 else 's'}" for count, noun in decided)
    return (
        f"{name}: unbalanced in {figures['unbalanced_percent'] or 0:.0f} % of the rounds, hottest broker at "
        f"{figures['hottest_points'] or 0:.0f} % and brokers {figures['spread_points'] or 0:.0f} points apart in the mean, {acts}"
    )


_SHOWN_DIFFERENCES = 10


def tree_of(found: Backtest) -> dict[str, Any]:
    """Score card, runs and differences as plain values; the series of the plots are in the page only."""
    return {
        "sources": found.sources,
        "closed_loop": [
            {"cluster": run.scenario, "candidate": run.candidate, **msgspec.to_builtins(run.score)}
            for run in found.closed
        ],
        "score_card": {
            cluster: rows for cluster, rows in card(found.closed).items() if cluster in found.clusters
        },
        "open_loop": msgspec.to_builtins(found.decided),
        "differences": [_difference(each) for each in found.differences],
    }


def _difference(each: Difference) -> dict[str, Any]:
    tree: dict[str, Any] = msgspec.to_builtins(each)
    return {"cluster": each.cluster, "round_end": rfc3339(tree.pop("end_ms")), "decisions": tree["decisions"]}


def open_text(found: Backtest) -> str:
    """What was decided in the open loop, and the first rounds in which candidates differ; empty without it."""
    if not found.decided:
        return ""
    width = max(len("open loop"), *(len(each.candidate) for each in found.decided))
    lines = [f"{'open loop':{width}}  rounds  unloads  splits"]
    lines += [
        f"{each.candidate:{width}}  {each.rounds_count:>6,}  {each.unloads_count:>7,}  {each.splits_count:>6,}"
        for each in found.decided
    ]
    refused = {each.rejected_count for each in found.decided if each.rejected_count}
    if refused:
        lines += [
            "",
            f"{counted(max(refused), 'event')} refused, as a controller would: `trimtab replay --only rejected` says why",
        ]
    if not found.differences:
        return "\n".join([*lines, "", "All candidates decided the same in every round.", ""])
    count = len(found.differences)
    lines += ["", f"{count:,} round{'s' if count > 1 else ''} decided differently:"]
    for each in found.differences[:_SHOWN_DIFFERENCES]:
        lines += ["", f"{each.cluster}, round until {time_text(rfc3339(each.end_ms), is_exact=True)}"]
        lines += [f"  {line}" for decision in each.decisions for line in _lines(decision)]
    if count > _SHOWN_DIFFERENCES:
        lines += [
            "",
            f"{count - _SHOWN_DIFFERENCES:,} more: --html shows them beside each other, -o json has all",
        ]
    return "\n".join([*lines, ""])


def _lines(decision: Decision) -> Iterator[str]:
    for act in decision.acts:
        yield f"{decision.candidate}: {act.kind}: {act.reason}"
    for reason in decision.why_not:
        yield f"{decision.candidate}: not: {reason}"
