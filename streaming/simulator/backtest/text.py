"""A backtest as text for people, and as a tree for programs."""

from collections.abc import Iterator
from typing import Any

import msgspec

from state.outputs import rfc3339
from streaming.simulator.backtest.differences import Decision, Difference
from streaming.simulator.backtest.results import Backtest
from streaming.simulator.card import card

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
            f"{max(refused)} events were refused, as a controller would: `trimtab replay --only rejected` says why",
        ]
    if not found.differences:
        return "\n".join([*lines, "", "All candidates decided the same in every round.", ""])
    count = len(found.differences)
    lines += ["", f"{count:,} round{'s' if count > 1 else ''} decided differently:"]
    for each in found.differences[:_SHOWN_DIFFERENCES]:
        lines += ["", f"{each.cluster}, round until {rfc3339(each.end_ms)}"]
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
