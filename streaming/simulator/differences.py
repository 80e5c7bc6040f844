"""What a backtest found: how much each candidate decided, where they differ and why, and which of them did better."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import msgspec

from policies.shedding.contract import FIRED
from policies.wording import counted, time_text
from state.outputs import rfc3339
from state.settings import PulsarSettings
from streaming.settings import ClusterSettingsSource, Settings
from streaming.simulator.backtest import AS_RECORDED, REFERENCES, Act, Opened, OpenRound, Survey, Why
from streaming.simulator.runs import NOBODY
from streaming.simulator.score import ALL, BALANCED_POINTS, COLUMNS, Run, Score, card


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
        return f"{act.bundle} {_describe_act(act)}, but {_describe_act(other)}"
    if why is None:
        return "no round ended here"
    for subject, rows in ((act.bundle, why.bundles), (act.source, why.pairs)):
        details = list(dict.fromkeys(detail for name, detail in rows if name == subject))
        if details == [FIRED]:
            return f"{act.bundle}: {subject} sheds others"
        if details:
            return f"{subject}: {', '.join(details)}"
    return why.reason


def _describe_act(act: Act) -> str:
    return "split" if act.kind == "split" else f"to {act.destination or 'the broker that Pulsar chooses'}"


_NOT_KNOWN = {"disrupted_messages", "recovery_rounds"}
"""Figures that a recording does not show: how long clients wait, and when a disturbance began."""
RECORDED_COLUMNS = tuple(each for each in COLUMNS if each.key not in _NOT_KNOWN)
NOTE = (
    "Usage is what a broker's most used resource takes, in percent of its limit and by the weights of [pulsar.usage]; a point is one "
    f"percent of usage. A cluster is balanced while the hottest and the coldest broker are at most {BALANCED_POINTS:g} points apart, as "
    "they report it: the noise of their figures is included, the same for every candidate. Every candidate acts, whatever its mode."
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
    settings: list[str]
    """What operators had set in the recording, a line for each cluster; empty where nothing counts."""
    surveys: list[Survey]
    closed: list[Run]
    decided: list[Decided]
    differences: list[Difference]
    first_rounds: dict[str, int]
    """By cluster, the first round in which every candidate may act."""

    def closed_runs(self, cluster: str) -> list[Run]:
        """The runs of a cluster in the closed loop."""
        return [run for run in self.closed if run.scenario == cluster]

    def verdict(self, cluster: str) -> list[str]:
        """What the closed loop shows of a cluster: sentences of ``verdict``, or that there are too few rounds for any."""
        runs, first = self.closed_runs(cluster), self.first_rounds[cluster]
        if not runs or (count := runs[0].score.rounds) > first:
            return verdict(runs)
        recorded = f"{counted(count, 'round')} {'is' if count == 1 else 'are'} recorded"
        why = f"the first in which every candidate may act is round {first} (warmup_rounds, and the hit count of its policy)"
        return [
            f"No verdict: {recorded}, and {why}. What an action does shows in the rounds after it: record for longer."
        ]


def backtest_of(
    sources: str,
    settings: Sequence[str],
    surveys: Sequence[Survey],
    closed: Sequence[Run],
    opened: Sequence[Opened],
    candidates: Sequence[Settings],
) -> Backtest:
    """Both loops together, cluster by cluster."""
    return Backtest(
        sources=sources,
        settings=list(settings),
        surveys=list(surveys),
        closed=list(closed),
        decided=[_count_decided(each) for each in opened],
        differences=[
            each
            for survey in surveys
            for each in differences([run for run in opened if run.cluster == survey.cluster])
        ],
        first_rounds={
            survey.cluster: max(
                _first_round(ClusterSettingsSource(each).base(survey.cluster).pulsar) for each in candidates
            )
            for survey in surveys
        },
    )


def _first_round(settings: PulsarSettings) -> int:
    """The first round in which the policy may act: it counts its hits in the rounds after those that only look."""
    section = asdict(settings.section_of(settings.policy))
    return settings.rounds.warmup_rounds + min(
        (hits for name, hits in section.items() if name.endswith("hit_count")), default=1
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


class _Ground(NamedTuple):
    """A figure that candidates are compared by; the lower one is the better one."""

    value: Callable[[Score], float]
    text: str
    """How the figures of two candidates are told."""
    least: float
    """A difference is clear from this on, …"""
    least_share: float = 0.0
    """… and from this share of the lower figure, …"""
    least_rounds: int = 0
    """… and from this many rounds, for a figure in % of the rounds."""

    def is_clear(self, lower: Score, higher: Score) -> bool:
        """Whether two candidates differ in it."""
        rounds_percent = 100.0 * self.least_rounds / lower.rounds
        least = max(self.least, self.least_share * self.value(lower), rounds_percent)
        return self.value(higher) - self.value(lower) >= least


_GROUNDS = (
    _Ground(
        lambda score: 100.0 * score.unbalanced_rounds / score.rounds,
        "the cluster is unbalanced in {:.0f} % of the rounds, not in {:.0f} %",
        least=5.0,
        least_rounds=3,
    ),
    _Ground(
        lambda score: score.spread_points, "its brokers are {:.0f} points apart in the mean, not {:.0f}", 3.0
    ),
    _Ground(
        lambda score: 100.0 * score.moved_messages_ratio,
        "{:.0f} % of the fleet's message rate moves, not {:.0f} %",
        least=5.0,
        least_share=0.25,
    ),
    _Ground(
        lambda score: float(score.unloads + score.splits),
        "it takes {:.0f} moves and splits, not {:.0f}",
        least=3.0,
        least_share=0.25,
    ),
)
CLEAR = (
    "Compared in this order: the time unbalanced, the spread, the traffic moved, and the number of moves and splits. The first clear "
    "difference says which is better; what is clearly worse further down is its price. Clear means: 5 % of the rounds, and 3 rounds, in "
    "the time unbalanced; 3 points in the spread; 5 % of the fleet's message rate, and a quarter more, in the traffic moved; 3, and a "
    "quarter more, in moves and splits."
)


def verdict(runs: Sequence[Run]) -> list[str]:
    """Each two candidates of a cluster compared, a sentence for each pair; a single one is compared with the reference. See ``CLEAR``."""
    scores = {run.candidate: run.score for run in runs}
    candidates = [name for name in scores if name not in REFERENCES]
    compared = candidates if len(candidates) > 1 else list(scores)
    return [_compare(one, other, scores) for one, other in itertools.combinations(compared, 2)]


def _compare(one: str, other: str, scores: Mapping[str, Score]) -> str:
    lower_of = {
        ground: lower
        for ground in _GROUNDS
        for lower, higher in ((one, other), (other, one))
        if ground.is_clear(scores[lower], scores[higher])
    }
    if not lower_of:
        return f"No clear difference between {_called(one)} and {_called(other)}."
    (decisive, better), *rest = lower_of.items()
    worse = other if better == one else one
    told = decisive.text.format(*(decisive.value(scores[name]) for name in (better, worse)))
    prices = [
        ground.text.format(*(ground.value(scores[name]) for name in (better, worse)))
        for ground, lower in rest
        if lower == worse
    ]
    price, but = (" at a price", f"; but {', and '.join(prices)}") if prices else ("", "")
    sentence = f"{_called(better)} is better than {_called(worse)}{price}: {told}{but}."
    return sentence if better in scores.keys() - REFERENCES else sentence[0].upper() + sentence[1:]


def _called(name: str) -> str:
    """A reference is no policy, and its name no noun."""
    return {AS_RECORDED: "what was recorded", NOBODY.name: "no action at all"}.get(name, name)


_SHOWN_DIFFERENCES = 10


def describe_fleet(survey: Survey) -> str:
    """A cluster, its size and the time of its reports."""
    return (
        f"{survey.cluster} ({len(survey.brokers)} brokers, {survey.bundles_count:,} bundles): {survey.reports_count:,} load reports, "
        f"{time_text(rfc3339(survey.first_ms))} to {time_text(rfc3339(survey.last_ms))}"
    )


def tree_of(found: Backtest) -> dict[str, Any]:
    """Score card, runs and differences as plain values; the series of the plots are in the page only."""
    return {
        "sources": found.sources,
        "operators_settings": found.settings,
        "closed_loop": [
            {"cluster": run.scenario, "candidate": run.candidate, **msgspec.to_builtins(run.score)}
            for run in found.closed
        ],
        "score_card": {cluster: rows for cluster, rows in card(found.closed).items() if cluster != ALL},
        "verdicts": {each.cluster: found.verdict(each.cluster) for each in found.surveys},
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
    tables = [_decided_table(survey.cluster, found.decided) for survey in found.surveys]
    lines = [line for table in tables for line in (*table, "")]
    refused = {each.rejected_count for each in found.decided if each.rejected_count}
    if refused:
        lines += [
            f"{counted(max(refused), 'event')} refused, as a controller would: `trimtab replay --only rejected` says why",
            "",
        ]
    if not found.differences:
        return "\n".join([*lines, same_text(found), ""])
    count = len(found.differences)
    lines += [f"{count:,} round{'s' if count > 1 else ''} decided differently:"]
    for each in found.differences[:_SHOWN_DIFFERENCES]:
        lines += ["", f"{each.cluster}, round until {time_text(rfc3339(each.end_ms), is_exact=True)}"]
        lines += [f"  {line}" for decision in each.decisions for line in _lines(decision)]
    if count > _SHOWN_DIFFERENCES:
        lines += [
            "",
            f"{count - _SHOWN_DIFFERENCES:,} more: --html shows them beside each other, -o json has all",
        ]
    return "\n".join([*lines, ""])


def same_text(found: Backtest) -> str:
    """The sentence where no round was decided differently; a single candidate has nothing to differ from."""
    if len({each.candidate for each in found.decided}) == 1:
        return (
            "There is one candidate, so no decisions are compared: give --policy or --config more than once."
        )
    return "All candidates decided the same in every round."


def _decided_table(cluster: str, decided: Sequence[Decided]) -> list[str]:
    title, rows = f"{cluster}, open loop", [each for each in decided if each.cluster == cluster]
    width = max(len(title), *(len(each.candidate) for each in rows))
    return [f"{title:{width}}  rounds  unloads  splits"] + [
        f"{each.candidate:{width}}  {each.rounds_count:>6,}  {each.unloads_count:>7,}  {each.splits_count:>6,}"
        for each in rows
    ]


def _lines(decision: Decision) -> Iterator[str]:
    for act in decision.acts:
        yield f"{decision.candidate}: {act.kind}: {act.reason}"
    for reason in decision.why_not:
        yield f"{decision.candidate}: not: {reason}"
