"""Why no action of a kind happens in a round of a Pulsar cluster; the policies go on counting."""

from dataclasses import dataclass

from state.engine.holds import Hold, failing_hold, quiet_hold
from state.engine.ledger import ActionKind
from state.engine.memory import Header
from state.engine.summary import join_names
from state.facts import SPLIT_ALGORITHM, Facts
from state.pulsar.two_balancers import balancer_at_work
from state.quiet_hours import NO_ZONES, Zones
from state.settings import GuardSettings, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """Why no action of a kind happens in a round; None where it may."""

    unload: Hold | None
    split: Hold | None


def holds_of(
    header: Header,
    guards: GuardSettings,
    *,
    is_paused: bool,
    mode: Mode,
    end_ms: int,
    zones: Zones = NO_ZONES,
) -> Holds:
    """The holds of a round, after the judgement of the actions before it."""

    def find(kind: ActionKind) -> Hold | None:
        if is_paused:
            return Hold("paused", "the cluster is paused")
        return (
            failing_hold(header, guards, kind)
            or (_hold_beside_balancer(header.facts, guards) if mode == "act" else None)
            or quiet_hold(guards, f"{kind}s", end_ms=end_ms, zones=zones)
        )

    return Holds(unload=find("unload"), split=find("split") or _hold_restricted_splits(header.facts))


def _hold_beside_balancer(facts: Facts | None, guards: GuardSettings) -> Hold | None:
    """Why nothing is done beside another balancer; a broker that could not be asked holds nothing."""
    found = balancer_at_work(facts) if guards.hold_beside_other_balancer else None
    return None if found is None else Hold("two-balancers", found)


def _hold_restricted_splits(facts: Facts | None) -> Hold | None:
    """Why Pulsar would refuse every split; a broker that could not be asked holds nothing."""
    if facts is None or not facts.restricted_brokers:
        return None
    return Hold(
        "restricted-split",
        f"{join_names(facts.restricted_brokers)} would refuse it: add {SPLIT_ALGORITHM} to "
        "supportedNamespaceBundleSplitAlgorithms at every broker",
    )
