"""Placement again, written as naively as possible: every broker is weighed anew for every unload.

From Pulsar's classes ``LeastLongTermMessageRate`` and ``LeastResourceUsageWithWeight`` (4.2.4), with what the module
``policies.placement`` says it does otherwise. Among equally loaded brokers, the first by name is taken.
"""

import math

from tests.policies.fleets import Fleet, Unload

UNSAMPLED_MESSAGES_PER_S = 50.0 + 50.0


def by_message_rate(
    fleet: Fleet,
    ratios: dict[str, float],
    wanted: list[Unload],
    *,
    unsampled: set[str],
    overloaded_ratio: float,
) -> list[Unload]:
    """The unloads that are left, with their destinations."""
    placed: list[Unload] = []
    rate_of = {
        name: UNSAMPLED_MESSAGES_PER_S if name in unsampled else bundle.messages_per_s
        for broker in fleet.values()
        for name, bundle in broker.bundles.items()
    }
    receiving = [name for name in sorted(fleet) if fleet[name].may_receive]
    candidates = [name for name in receiving if not ratios[name] > overloaded_ratio] or receiving
    rates = {name: sum(rate_of[bundle] for bundle in sorted(fleet[name].bundles)) for name in fleet}
    for bundle, source, _ in wanted:
        destination = _least(rates, candidates, source)
        if destination:
            rates[source] = max(0.0, rates[source] - rate_of[bundle])
            rates[destination] += rate_of[bundle]
            placed.append((bundle, source, destination))
    return placed


def by_usage(
    fleet: Fleet, ratios: dict[str, float], wanted: list[Unload], *, unmeasured: set[str]
) -> list[Unload]:
    """The unloads that are left, with their destinations."""
    placed: list[Unload] = []
    usage = dict(ratios)
    candidates = [name for name in sorted(fleet) if fleet[name].may_receive and name not in unmeasured]
    for bundle, source, _ in wanted:
        destination = _least(usage, candidates, source)
        if destination:
            flowing = fleet[source].bytes_per_s
            share = min(1.0, fleet[source].bundles[bundle].bytes_per_s / flowing) if flowing > 0 else 0.0
            usage[source] = max(0.0, usage[source] - share * ratios[source])
            usage[destination] += share * ratios[source]
            placed.append((bundle, source, destination))
    return placed


def _least(load: dict[str, float], candidates: list[str], source: str) -> str | None:
    """The least loaded candidate except ``source``; None if ``source`` is a candidate too and has less load than all others."""
    own = load[source] if source in candidates else math.inf
    others = [name for name in candidates if name != source]
    least = min(others, key=lambda name: (load[name], name), default=None)
    return least if least is not None and load[least] <= own else None
