"""Why a wanted throttle decision does not happen; the pacing goes on observing."""

from policies.throttle.pacing_round import PacingMemory, ThrottleDecision
from state.engine.holds import Hold, error_hold
from state.engine.memory import Header
from state.kafka.memory import KafkaMemory
from state.kafka.summary import Closed
from state.outputs import Output, canonical

_REMOVAL_BYTES = 100_000
"""Size of an action that takes a throttle off, without its lists."""


def hold_decision(
    decision: ThrottleDecision, header: Header, memory: KafkaMemory, closed: Closed
) -> Hold | None:
    """Why a decision does not become an action; None if it does. What is throttled comes off even where throttling is switched off."""
    if closed.closing.is_paused:
        return Hold("paused", "the cluster is paused")
    error = error_hold(header)
    if error is not None:
        return error
    if not closed.settings.throttle.enabled and decision.trigger != "finished":
        return Hold("off", "kafka.throttle.enabled is false")
    if closed.closing.end_ms < memory.retry_ms:
        waits_s = (memory.retry_ms - closed.closing.end_ms) / 1000
        return Hold(
            "retrying",
            f"{memory.failures_count} decisions in a row were not carried out, the next is made in {waits_s:g} s",
        )
    return None


def hold_too_large(action: Output, after: PacingMemory, max_bytes: int) -> Hold | None:
    """Why an action is not published: it, or the one that takes the throttle off in the end, is larger than the output accepts."""
    needed = max(len(action.data), len(canonical(after.added)) + _REMOVAL_BYTES if after.is_active else 0)
    if needed <= max_bytes:
        return None
    return Hold(
        "too-large",
        f"the action takes {needed} bytes and at most {max_bytes} are published: move fewer partitions at a time "
        "(`trimtab throttle plan --batches`), or throttle whole topics with `*` by hand",
    )
