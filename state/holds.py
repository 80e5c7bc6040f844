"""Why nothing of a kind is done in a round, whatever the bundle; the policies go on counting.

Failures of one kind of action do not hold the other: what keeps splits from working says nothing of unloads.
"""

from state import effects
from state.closing import Closing
from state.facts import SPLIT_ALGORITHM, Facts
from state.guards import Hold, Holds, quiet
from state.memory import Header
from state.past import ActionKind
from state.two_balancers import named, two_balancers_hold


def holds_of(closing: Closing, header: Header) -> Holds:
    """The holds of a round, after the judgement of the actions before it."""
    splits = _hold(closing, header, "split") or _restricted(header.facts)
    return Holds(unload=_hold(closing, header, "unload"), split=splits)


def _hold(closing: Closing, header: Header, kind: ActionKind) -> Hold | None:
    if closing.paused:
        return Hold("paused", "the cluster is paused")
    guards = closing.settings.pulsar.guards
    beside = None if closing.mode == "dry-run" else two_balancers_hold(header.facts, guards)
    return (
        effects.failing_hold(header, guards, kind)
        or beside
        or quiet(guards, f"{kind}s", end_ms=closing.end_ms)
    )


def _restricted(facts: Facts | None) -> Hold | None:
    """Why Pulsar would refuse every split; a broker that could not be asked holds nothing."""
    if facts is None or not facts.restricted_brokers:
        return None
    return Hold(
        "restricted-split",
        f"{named(facts.restricted_brokers)} would refuse it: add {SPLIT_ALGORITHM} to "
        "supportedNamespaceBundleSplitAlgorithms at every broker",
    )
