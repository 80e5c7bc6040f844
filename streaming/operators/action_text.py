"""Actions as text: two lines for each as it comes, and one action with all its details."""

from collections.abc import Iterator, Mapping
from typing import Any

from state.outputs import RoundSummary
from streaming.contract.encode import LeaderData
from streaming.contract.envelope import ReadEnvelope
from streaming.operators.action_events import Action
from streaming.operators.round_text import circumstances_lines, looked_at_lines
from streaming.operators.text import table_lines, value_text


def tail_text(action: Action, *, epoch: int | None, stale: bool) -> str:
    """What an action does, and why, in two lines."""
    marks = [
        *([_shown(action)] if action.data.dry_run else []),
        *([f"epoch {epoch} is stale: do not obey it"] if stale else []),
    ]
    marked = f" [{', '.join(marks)}]" if marks else ""
    return (
        f"{action.time} {action.cluster} {headline(action)}{marked} ({action.id})\n    {action.data.reason}\n"
    )


def leader_text(leader: ReadEnvelope[LeaderData]) -> str:
    """The new leader, in a line."""
    data = leader.data
    return f"{leader.time} controller {data.controller} has a new leader, epoch {data.epoch}\n"


def headline(action: Action) -> str:
    """Kind, target and, if the kind has them, the source and destination broker."""
    data = action.data
    way = ""
    if data.source_broker is not None:
        way = f" {data.source_broker} -> {data.destination_broker or 'where placement chooses'}"
    elif data.broker is not None:
        way = f" at {data.broker}"
    return f"{action.kind} {action.subject}{way}"


def why_text(action: Action, summary: RoundSummary | None, *, missing: str) -> str:
    """The reason, the evidence, both sides before and after the action, and what else the round looked at.

    ``missing`` is the text for a round whose summary was not found.
    """
    data = action.data
    lines = [
        headline(action),
        data.reason,
        "",
        f"decided   in round {data.round} of {action.cluster}, which ended at {action.time}",
        f"by        {data.policy}, {data.trigger}",
        f"until     {data.expires_at}" + _who_obeys(action),
        *([f"approved  proposal {data.proposal_id}"] if data.proposal_id else []),
        f"requires  {_pairs(data.precondition) or 'nothing'}",
        f"id        {action.id}",
        "",
        "Evidence",
        *table_lines([(name, value_text(value)) for name, value in sorted(data.evidence.items())]),
        *_sides(action, summary),
    ]
    lines += ["", missing] if summary is None else _round(action, summary)
    return "".join(f"{line}\n" for line in lines)


def _shown(action: Action) -> str:
    return "proposal" if action.data.proposal else "dry-run"


def _who_obeys(action: Action) -> str:
    if action.data.proposal:
        return " (a proposal: carried out only after `trimtab approve`)"
    return " (dry-run: it is not carried out)" if action.data.dry_run else ""


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} is {value_text(value)}" for name, value in sorted(values.items()))


_SIDES = ("source", "destination")


def _sides(action: Action, summary: RoundSummary | None) -> Iterator[str]:
    """The load after the action, of brokers or of the children of a split; for brokers the load before, from the summary, too."""
    brokers = {"source": action.data.source_broker, "destination": action.data.destination_broker}
    loads = {} if summary is None else {load.broker: load for load in summary.brokers}
    rows = []
    for side, expected in sorted(action.data.expected.items(), key=_side_order):
        broker = brokers.get(side)
        for name, after in sorted(expected.items()) if isinstance(expected, Mapping) else ():
            before = getattr(loads.get(broker or ""), name, None)
            shown = "" if broker is None else "unknown" if before is None else value_text(before)
            rows.append((f"{side} {broker}" if broker else side, name, shown, value_text(after)))
    if rows:
        yield from ("", "Expected load, after this action and the earlier actions of its round")
        yield from table_lines([("", "", "before", "after"), *rows])


def _side_order(side: tuple[str, object]) -> tuple[int, str]:
    """Source, destination, then anything else by name."""
    name = side[0]
    return (_SIDES.index(name) if name in _SIDES else len(_SIDES), name)


def _round(action: Action, summary: RoundSummary) -> Iterator[str]:
    yield from ("", f"The round: {summary.reason}")
    yield from circumstances_lines(summary)
    yield from looked_at_lines(summary, but=action.subject)
    others = [each for each in summary.actions if each != action.id]
    yield from ("", f"Other actions of the round: {', '.join(others) or 'none'}")
