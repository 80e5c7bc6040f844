"""Puts published throttles into the memory where the round that decided them is not decided again as it was.

Each throttle says what it changes, so all since the first one add up to what is wanted and may be on the cluster. Later rounds
see whether it is there (``reconcile``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

import msgspec

from policies.throttle.lists import ThrottledLists, difference, union
from policies.throttle.pacing_plan import PacingMemory, ThrottleDecision, Trigger
from policies.throttle.rates import rates_by_role
from state.kafka import reconcile
from state.kafka.memory import KafkaMemory, ThrottleConfigs
from state.outputs import Output, Throttle, moment_ms


def restore(memory: KafkaMemory, published: Iterable[Output]) -> None:
    """Remember the published throttles in their order. Changes ``memory``."""
    for output in published:
        throttle = msgspec.json.decode(output.data, type=Throttle)
        if memory.is_shadow and not throttle.dry_run:
            _leave_dry_run(memory)
        decision = _decision(throttle)
        after = _after(memory.pacing, decision, decided_ms=output.time_ms)
        if throttle.dry_run:
            memory.is_shadow = True
        else:
            expires_ms = moment_ms(throttle.expires_at)
            reconcile.remember_asked(memory, decision, after, action_id=output.id, expires_ms=expires_ms)
        memory.pacing = after


def _leave_dry_run(memory: KafkaMemory) -> None:
    """Go on from what was really decided: nothing of a dry-run is on the cluster."""
    wanted = memory.confirmed if memory.asked is None else memory.asked.wanted
    memory.is_shadow = False
    memory.pacing = (
        PacingMemory()
        if wanted.is_empty
        else replace(
            memory.pacing,
            added=wanted.lists,
            leader_rates=wanted.leader_rates,
            follower_rates=wanted.follower_rates,
        )
    )


def _decision(throttle: Throttle) -> ThrottleDecision:
    """What the throttle changes; the rates that it sets are all that are in force after it, so those that it clears say nothing."""
    return ThrottleDecision(
        trigger=cast("Trigger", throttle.trigger),
        add=ThrottledLists(
            leader=throttle.add_leader_throttled_replicas, follower=throttle.add_follower_throttled_replicas
        ),
        remove=ThrottledLists(
            leader=throttle.remove_leader_throttled_replicas,
            follower=throttle.remove_follower_throttled_replicas,
        ),
        set_rates=rates_by_role(
            _by_broker(throttle.leader_rate_bytes_per_s), _by_broker(throttle.follower_rate_bytes_per_s)
        ),
    )


def _by_broker(rates: Mapping[str, int]) -> dict[int, int]:
    return {int(broker): rate for broker, rate in rates.items()}


def _after(before: PacingMemory, decision: ThrottleDecision, *, decided_ms: int) -> PacingMemory:
    if decision.trigger == "finished":
        return PacingMemory()
    wanted = ThrottleConfigs.of(
        union(difference(before.added, decision.remove), decision.add), decision.set_rates
    )
    return replace(
        before,
        begun_ms=decided_ms if before.begun_ms is None else before.begun_ms,
        changed_ms=decided_ms,
        added=wanted.lists,
        leader_rates=wanted.leader_rates,
        follower_rates=wanted.follower_rates,
        is_fallback=decision.trigger == "stale-reports",
        first_rate_bytes_per_s=before.first_rate_bytes_per_s or max(wanted.rates().values(), default=0),
    )
