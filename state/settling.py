"""Brokers that wait for an unload of theirs to show in the reports.

A policy that compares loads from before a move asks for the move again, of other bundles: the brokers swap places, and
the cooldown then keeps them there. With ``hold_unsettled_brokers`` a broker is neither source nor destination from the
decision of an unload it takes part in until the reports show the bundle at another broker, and in the round that first
does: for one stats period both brokers list it, and the new owner's rates are noise. A failed, skipped or expired
action changed nothing, so it holds nobody; one without effect holds no longer than it takes to be judged so.

It knows no destination that Pulsar chose. Unloads of a dry-run hold nobody: nothing is on its way.
"""

from collections.abc import Mapping

import numpy as np

from policies.columns import Bools
from state.memory import Fleet, Header
from state.past import Trial


def unsettled_brokers(header: Header, before: Mapping[str, Trial], *, end_ms: int) -> frozenset[str]:
    """Brokers that wait, after the round's judgement; ``before`` are the trials by action id as they were ahead of it."""
    shown = {
        verdict.action_id
        for verdict in header.verdicts
        if verdict.outcome == "good" and verdict.judged_ms == end_ms
    }
    found: set[str] = set()
    for action_id, trial in before.items():
        waits = action_id in shown or (
            action_id in header.trials and _is_awaited(header, action_id, trial, end_ms=end_ms)
        )
        if trial.kind == "unload" and waits:
            found.add(trial.source)
            if trial.destination is not None:
                found.add(trial.destination)
    return frozenset(found)


def _is_awaited(header: Header, action_id: str, trial: Trial, *, end_ms: int) -> bool:
    """Whether an action without verdict is being carried out, or was and does not show yet."""
    if trial.succeeded_ms is not None:
        return True
    action = header.actions.get(trial.bundle)
    return (
        action is not None
        and action.action_id == action_id
        and action.in_flight
        and end_ms < action.expires_ms
    )


def owned_by(fleet: Fleet, count: int, brokers: frozenset[str]) -> Bools:
    """Which of the fleet's leading ``count`` bundles one of ``brokers`` owns, (count,)."""
    held = np.array([name in brokers for name in fleet.brokers], dtype=np.bool_)
    owned: Bools = held[fleet.owner[:count]]
    return owned
