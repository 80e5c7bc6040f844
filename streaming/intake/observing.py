"""What the driver's metrics are told of a batch's records: taken from their tally, never computed again."""

from collections import Counter

from state.controller import Result
from streaming.intake.observation import EventCount, EventObservation
from streaming.intake.records import Tally


def event_observation(cluster: str, tally: Tally, *, forgotten: bool = False) -> EventObservation:
    """How the records of one cluster ended in a micro-batch; ``forgotten``: nothing is remembered of it after them."""
    by_type: Counter[tuple[str, Result]] = Counter()
    for (_, kind, result), count in tally.results.items():
        by_type[kind, result] += count
    counts = [
        EventCount(type=kind, result=result, count=count) for (kind, result), count in sorted(by_type.items())
    ]
    return EventObservation(
        cluster=cluster,
        counts=counts,
        rejected=dict(sorted(tally.reasons.items())),
        action_results=dict(sorted(tally.action_results.items())),
        forgotten=forgotten,
    )
