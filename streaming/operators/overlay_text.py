"""The newest control event of a cluster, and what a change makes of it, for a person."""

from typing import Any

import msgspec

from state.outputs import rfc3339
from streaming.contract.decode import to_ms
from streaming.contract.messages import ControlData
from streaming.operators.overlay import Planned, Standing, encode_change
from streaming.operators.upkeep import change_lines, standing_lines


def change_text(event: Planned) -> str:
    """What an event changes, and from when."""
    before, after = event.before, event.after
    lines = [
        _line("paused", _pause(before), _pause(after)),
        _line("mode", before.mode or "as configured", after.mode or "as configured"),
        *_describe_approval(before, after),
        *(f"  {change}" for change in event.changes),
        *change_lines(before, after),
        *_describe_resume(before, after),
        *(
            ["  forgotten: all that is remembered of the cluster; at once if the cluster is silent"]
            if after.forget
            else []
        ),
    ]
    since = f"from round {event.first_round} on, which begins at {rfc3339(event.first_round_ms)}"
    at_once = "; executors stop at once" if after.paused else ""
    return f"{event.cluster}: {since}{at_once}\n" + "".join(f"{line}\n" for line in lines)


def _describe_resume(before: ControlData, after: ControlData) -> list[str]:
    if after.resumed_at is None or after.resumed_at == before.resumed_at:
        return []
    return ["  actions that failed until now no longer count"]


def _describe_approval(before: ControlData, after: ControlData) -> list[str]:
    """A line about approval, only if it is set before or after the change."""
    if not (before.approval or after.approval):
        return []
    return [_line("approval", before.approval or "as configured", after.approval or "as configured")]


def _line(name: str, before: str, after: str) -> str:
    return f"  {name}: {after}" if before == after else f"  {name}: {before} -> {after}"


def _pause(data: ControlData) -> str:
    if not data.paused:
        return "no"
    return "yes" if data.until is None else f"until {rfc3339(to_ms(data.until))}"


def overlay_text(cluster: str, stands: Standing) -> str:
    """The newest control event of a cluster, as text."""
    event = stands.event
    lines = [] if stands.refused is None else [f"  a newer event is not in force: {stands.refused}"]
    if event is None:
        return "".join(f"{line}\n" for line in [f"{cluster}: as configured, no control event", *lines])
    data = stands.overlay
    settings = list(encode_change(data.settings)) or ["no settings"]
    head = (
        f"{cluster}: {event.who or 'somebody'} at {rfc3339(event.time_ms)}: {event.why or 'no reason given'}"
    )
    lines += [f"  paused: {_pause(data)}", f"  mode: {data.mode or 'as configured'}"]
    lines += [*_describe_approval(data, data), *standing_lines(data)]
    return "".join(f"{line}\n" for line in [head, *lines, *(f"  {each}" for each in settings)])


def overlay_tree(cluster: str, stands: Standing) -> dict[str, Any]:
    """The newest control event of a cluster, for a program."""
    event, data = stands.event, stands.overlay
    return {
        "cluster": cluster,
        "id": None if event is None else event.id,
        "time": None if event is None else rfc3339(event.time_ms),
        "refused": stands.refused,
        **msgspec.to_builtins(data),
    }
