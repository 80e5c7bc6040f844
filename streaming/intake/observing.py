"""What the driver's metrics get about a batch's records: it is taken from their tally, never computed again."""

from collections import Counter

from state.controller import Result
from streaming.intake.observation import EventCount, EventObservation
from streaming.intake.records import Tally


def event_observation(cluster: str, tally: Tally, *, forgotten: bool = False) -> EventObservation:
    """The results of one cluster's records in a micro-batch; ``forgotten``: after them nothing is remembered of the cluster."""
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
